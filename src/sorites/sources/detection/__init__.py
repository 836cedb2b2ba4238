"""Readers of detection datasets."""
