"""Measure how far a picture moved.

Modules without an underscore register measures of a picture against its own clean one; the others
serve the distance to familiar pictures: the decomposition into meaning and appearance, nearest
neighbours, levels, filters.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
