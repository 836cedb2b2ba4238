"""The loop around the virtual camera (show, set, read back, fetch, straighten, write) against the
camera's own time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from bench.shifts import scene
from sorites.apps.studio.capture import Options
from sorites.apps.studio.session import Job, capture_all
from sorites.core import to_uint8

ROUNDS, IMAGES = 3, 4


def share() -> float:
    """One capture of a few images at half a megapixel."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(IMAGES):
            where = Path(folder, "images", "n01440764")
            where.mkdir(parents=True, exist_ok=True)
            image = np.roll(to_uint8(scene()), 40 * number, axis=1)
            Image.fromarray(image).resize((500, 375)).save(where / f"{number}.png")
        job = Job(
            f"folder:{folder}/images", Path(folder, "es"), "small", 1, options=Options(originals="drop")
        )
        return capture_all(job, lambda text: None).loop_share


def run() -> list[tuple[str, float, str]]:
    shares = sorted(share() for _ in range(ROUNDS))
    return [
        (
            "time around the camera / the virtual camera's own time",
            shares[len(shares) // 2],
            "aim 0.5 or less",
        )
    ]
