"""Progress of consumer groups, and where queues begin and end."""
