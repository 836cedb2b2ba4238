"""Facts about images computed after a run: similarity, distance and levels."""
