"""A run on disk: record, manifest, shards, kept outputs."""
