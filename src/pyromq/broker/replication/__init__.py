"""Replication: a master sends its log to slaves, byte by byte, and slaves follow it (docs/spec/ha.md)."""
