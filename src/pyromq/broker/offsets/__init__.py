"""How far consumer groups are, and where queues begin and end."""
