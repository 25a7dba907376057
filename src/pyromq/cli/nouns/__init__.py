"""The nouns of `pyromq`: a module each, `pyromq topic` in `topic.py`. How one is written: `pyromq/cli/__init__.py`."""
