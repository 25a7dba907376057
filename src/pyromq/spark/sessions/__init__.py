"""Spark sessions: enabling our formats, diagnosis, and running programs."""
