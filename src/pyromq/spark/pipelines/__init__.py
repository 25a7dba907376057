"""Pipelines that are ready to run: archive, replay, transform, audit, lag, latency."""
