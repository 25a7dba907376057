"""Any bytes end in a value or in a typed error: mutated input for every decoder. Start at run.py."""
