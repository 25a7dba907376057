"""Servers: what brokers measure, their settings, what they carry, what is wrong with them."""
