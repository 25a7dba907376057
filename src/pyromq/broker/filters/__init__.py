"""Filters of consumer groups: which are registered, and messages put to their test."""
