"""Heads that predict time, weather and locations of composites with drawn places: agreement on
objects that they have not seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof._lines import Line
from sorites import core
from sorites.apps.annotation.heads import features_of, fit_to_features
from sorites.apps.annotation.predict import annotated_images
from sorites.datasets.context import build_context
from sorites.io.files import cache

SEEDS = range(5)
"""The splits of objects.

The features (an image's four quarters) were chosen with the first in sight; the others are fresh.
"""
BARS = {"time": 90.0, "weather": 80.0, "location": 60.0}


def run() -> Iterator[Line]:
    root = cache("proof", "drawn_context")
    objects, images = build_context(root, drawn=True)
    yield Line("objects", objects, f"{images} images; a place is drawn again for each object")
    held = annotated_images(f"context:{root}")
    features, kept = features_of(core.model("lite0"), [image.load for image in held])
    for seed in SEEDS:
        for row in fit_to_features(features, [held[place] for place in kept], seed)[1].rows(named=True):
            note = (
                f"95 % {100 * row['low']:.1f} to {100 * row['high']:.1f}, {row['images']} images of"
                f" {row['objects']} objects, chance {100 * row['chance']:.0f}, calibration error"
                f" {row['error']:.2f}"
            )
            yield Line(
                f"{row['kind']}, split {seed}, agreement in %",
                100 * row["agreement"],
                note,
                least=BARS[row["kind"]],
            )
