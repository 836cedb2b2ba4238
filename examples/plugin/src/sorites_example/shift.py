"""A dial of your own: what severity means, its unit, and the levels you publish."""

import numpy as np

from sorites.core import Image, add_shift

TONE = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]], np.float32)


@add_shift(family="colour", unit="share of sepia", levels=(0.2, 0.4, 0.6, 0.8, 1.0))
def sepia(image: Image, severity: float, rng: np.random.Generator) -> Image:
    """The picture drawn towards brown, as an old print: 1 leaves no other colour."""
    brown = np.clip(image @ TONE.T, 0, 1)
    return np.clip(image + np.float32(severity) * (brown - image), 0, 1)
