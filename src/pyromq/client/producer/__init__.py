"""Producers: plain, transactional, and those that ask and wait for a reply."""
