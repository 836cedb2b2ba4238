"""Predictions that others made, as a run folder: files are read (names, cells, cns, counts), made
rows, and written whole.
"""
