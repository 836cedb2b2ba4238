"""SSIM of images of 224 x 224 px on one core, against scikit-image's of the same window."""

from __future__ import annotations

import time

import numpy as np

from bench._timing import in_turns

ROUNDS, TIMES = 7, 5


def run() -> list[tuple[str, float, str]]:
    from skimage.metrics import structural_similarity

    from sorites.core import measure

    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (224, 224, 3), dtype=np.uint8)
    second = np.clip(first + rng.normal(0, 20, first.shape), 0, 255).astype(np.uint8)
    same, ssim = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}, measure("ssim")
    ours, theirs = (
        min(seconds)
        for seconds in in_turns(
            ROUNDS,
            time.process_time,
            lambda: [ssim(first, second) for _ in range(TIMES)],
            lambda: [structural_similarity(first, second, channel_axis=-1, **same) for _ in range(TIMES)],
        )
    )
    return [
        ("ssim of an image: ms of one core", 1000 * ours / TIMES, "aim <= 10"),
        ("ssim: over scikit-image", theirs / ours, ""),
    ]
