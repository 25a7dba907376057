"""The nouns of `pyromq`: `pyromq topic` is in `topic.py`. `pyromq/cli/__init__.py` explains how to write one."""
