"""Messages: which are meant, reading and following them, dead letters, traces."""
