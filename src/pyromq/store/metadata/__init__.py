"""The small files of a store: `config/*.json`, the checkpoint, deleted topics."""
