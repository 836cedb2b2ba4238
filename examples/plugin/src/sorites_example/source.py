"""A source of your own: samples with ids that stay the same, labels, and images that are made
when they are asked for.
"""

from collections.abc import Iterator

import numpy as np

from sorites.core import Generated, ImageU8, Sample, add_source
from sorites.core.labels import Labels


@add_source
def stripes(path: str | None, labels: Labels) -> Iterator[Sample]:
    """Draw stripes twelve times, which may pass for zebras."""
    for turn in range(12):
        yield Sample(f"stripes-{turn:02d}", Generated(draw, (turn,)), label=labels.find("zebra"))


def draw(turn: int) -> ImageU8:
    """Draw black and grey stripes, turned a little further for each ``turn``."""
    y, x = np.mgrid[:96, :128]
    bright = np.sin((x * np.cos(turn / 4) + y * np.sin(turn / 4)) / 3) > 0
    return np.repeat(bright[..., None] * np.uint8(200), 3, axis=2)
