"""The small files of a store: `config/*.json`, the checkpoint, the list of deleted topics."""
