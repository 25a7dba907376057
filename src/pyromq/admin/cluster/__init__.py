"""Servers: broker figures, settings, load, and what is wrong with them."""
