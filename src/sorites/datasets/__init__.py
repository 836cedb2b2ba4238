"""Pictures and datasets made from pictures: built suites, context composites, photographs through a lens.

What is written here can be read back as a source. Nothing here evaluates a model.
"""
