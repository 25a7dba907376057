"""Topics and groups as a file says they should be, and such a file of what a cluster has."""
