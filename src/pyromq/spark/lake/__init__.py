"""The lake: topics as tables for good, each message in them once, positions and rows in the same commit."""
