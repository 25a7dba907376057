"""`pyromq message`: find, read, follow, send, export and import messages."""
