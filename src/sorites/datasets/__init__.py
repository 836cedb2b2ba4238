"""Images and datasets made from images: datasets built from suites, context composites,
photographs through a lens.

Datasets written here can be read back as a source. This room does not evaluate models.
"""
