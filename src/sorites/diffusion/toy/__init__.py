"""The toy world: four shapes, plain, in snow or at night, 16 pixels wide, and a small complete pipeline
for them.
"""
