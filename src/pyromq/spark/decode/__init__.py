"""Stored records to Arrow columns, many at a time."""
