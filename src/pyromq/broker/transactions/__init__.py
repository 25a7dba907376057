"""Transactions: half messages, their commit or rollback, and checks back with producers."""
