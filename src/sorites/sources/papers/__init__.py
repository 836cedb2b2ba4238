"""Readers of the datasets of published benchmarks."""
