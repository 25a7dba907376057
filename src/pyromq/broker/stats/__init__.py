"""What a broker counts, and what it tells of itself."""
