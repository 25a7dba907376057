"""Fail-over: a broker whose role its controllers decide, and which copies with epochs (docs/spec/controller.md)."""
