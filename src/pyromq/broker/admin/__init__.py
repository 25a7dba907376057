"""What operators ask of a broker."""
