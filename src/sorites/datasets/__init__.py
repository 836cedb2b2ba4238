"""Datasets made from images: shifted images of suites, context composites, and photographs through a lens.

Datasets written here can be read back as a source. This package does not evaluate models.
"""
