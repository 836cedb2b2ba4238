"""Describe the package itself: what is installed, what runs where, and which papers stand behind a suite."""
