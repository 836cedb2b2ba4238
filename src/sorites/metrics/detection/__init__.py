"""Metrics of object detectors."""
