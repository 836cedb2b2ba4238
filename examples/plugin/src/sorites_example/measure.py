"""A measure of your own: two images of one size, the clean one first, to a number, and which way
is nearer.
"""

import numpy as np

from sorites.core import ImageU8, add_measure


@add_measure(nearer="lower", unit="8-bit steps")
def mean_difference(reference: ImageU8, moved: ImageU8) -> float:
    """Mean absolute difference of the 8-bit values; 0 for equal images."""
    return float(np.abs(reference.astype(np.int16) - moved).mean())
