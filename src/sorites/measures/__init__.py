"""Measure how far an image moved.

Modules without an underscore register measures of an image against its own clean one; the others
serve the distance to in-distribution images: the decomposition into meaning and appearance, nearest
neighbours, levels, filters.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
