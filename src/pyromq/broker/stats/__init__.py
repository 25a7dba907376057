"""Statistics and runtime info of a broker."""
