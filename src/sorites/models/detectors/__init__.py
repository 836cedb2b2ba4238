"""Object detectors."""
