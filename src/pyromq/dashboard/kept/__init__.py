"""What a dashboard keeps: history, jobs, audit, users, in one SQLite file."""
