"""Make topics and groups match a file, and write such a file from a cluster."""
