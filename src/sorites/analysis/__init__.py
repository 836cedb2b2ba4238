"""Analyses of finished runs: filters, comparisons, features and passports."""
