"""Transactions: half messages, how they end, and producers asked about those that nobody has ended."""
