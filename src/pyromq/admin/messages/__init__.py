"""Messages: choosing, reading, following and sending them, dead letters, traces."""
