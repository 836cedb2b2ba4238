"""Run folders on disk: metadata, manifest, shards and stored outputs."""
