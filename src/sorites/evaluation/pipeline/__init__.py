"""Producers make images, a consumer per device evaluates them in batches, a finisher writes their rows."""
