"""Measures of how far an image moved: similarity to its clean image, and distance to in-distribution
images.

``images`` and ``lpips`` register similarity measures. The other modules compute distances in the
feature space of an encoder: its decomposition, nearest neighbours and levels.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
