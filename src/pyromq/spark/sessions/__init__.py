"""Sessions: made ready for our formats, diagnosed, and given programs to run."""
