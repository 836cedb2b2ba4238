"""The toy world: four shapes, plain or in snow or at night, 16 pixels wide, and a small complete
pipeline that draws them.
"""
