"""Delay levels and timers: messages that are parked until they are due."""
