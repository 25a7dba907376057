"""Consumers: push and pull, their queues, their progress and their handlers."""
