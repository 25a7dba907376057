"""The check of a store: every inconsistency in its files."""
