"""Evaluation suites: TOML files and the model that validates them."""
