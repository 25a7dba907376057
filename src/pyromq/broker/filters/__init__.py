"""SQL92 filters of consumer groups: registered ones, and how messages are tested."""
