"""Producers: plain and transactional sends, batches, request and reply."""
