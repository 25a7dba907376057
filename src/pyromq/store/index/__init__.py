"""The index: where the messages with a key lie in the commit log."""
