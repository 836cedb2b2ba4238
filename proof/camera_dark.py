"""Why setting 26 (ISO 2000, 1/1000 s, f/16) is easier in the simulated camera than in the paper.

Setting 26 is 0.36 stops darker than setting 7 (ISO 250, 1/1000 s, f/5), and setting 16 (f/9) 1.70 stops. So its accuracy
lies between theirs, by exposure alone at 0.21 of the way, and further down if noise costs something: it has an eighth of
the photons for its brightness. The same number is computed for the published models and for the simulation by lite0,
as it is, without noise, and with 4.8 times the noise variance. Setting 27 has the photons of 26 at ISO 16000.

``SORITES_PHOTOS=DIR`` names labelled photographs; ``SORITES_CAMERA_PHOTOS=N`` takes the first N of the fair order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import polars as pl

from proof._lines import Line
from proof.camera_fit import LIGHTS, RESAMPLES, TABLES, Numbers, right
from sorites import core
from sorites.core import camera_grid, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.evaluation.samples import hashed_samples
from sorites.suites.suite import Frame

BRIGHT, DARK, NOISY, HIGH_ISO = SETTINGS = (7, 16, 26, 27)
PHOTOS = 190
# The camera averages over (550 / side)^2 pixels; over 250 the noise has (550 / 250)^2 times the variance.
CAMERAS = {
    "as it is": {},
    "without noise": {"camera": {"full_well_e": 5e7, "read_e": 0.0, "late_e": 0.0}},
    "4.8 x the noise variance": {"studio": {"span_px": 250}},
}


def place(bright: Numbers, noisy: Numbers, dark: Numbers) -> Numbers:
    """Return how far the noisy setting is from the bright (0) to the dark one (1)."""
    return (bright - noisy) / (bright - dark)


def published() -> Iterator[Line]:
    """Yield the place of setting 26 by light over all published models."""
    table = pl.read_csv(TABLES / "imagenet_es_tables.tsv", separator="\t")
    for light in LIGHTS:
        by_number = {
            number: table.filter(pl.col("number") == number).sort("table")[light].to_numpy()
            for number in (BRIGHT, NOISY, DARK)
        }
        places = place(by_number[BRIGHT], by_number[NOISY], by_number[DARK])
        note = f"least {places.min():.2f}, greatest {places.max():.2f} of {len(places)} models"
        yield Line(f"published, lamp {light}: median place of setting 26", float(np.median(places)), note)


def answers(photos: str, count: int, options: dict[str, dict[str, float]]) -> Numbers:
    """Return correct answers of lite0 by photograph: clean, then the settings by light."""
    lite, shift, frame = core.model("lite0"), core.shift("camera", **options), Frame(resize=256, crop=224)
    settings = [camera_grid.manual("test", light)[number - 1] for light in LIGHTS for number in SETTINGS]
    rows = []
    for sample in list(hashed_samples(core.source(f"folder:{photos}")))[:count]:
        image = frame(sample.load())
        made = shift.sweep(to_float(image), settings, rng_for(0, sample.id, shift.name))
        rows.append(right(lite, [image, *(to_uint8(shot) for shot in made)], sample.label))
    return np.array(rows, np.float64)


def lines(name: str, verdicts: Numbers) -> Iterator[Line]:
    rng, count = np.random.default_rng(0), len(verdicts)
    drawn = np.stack([verdicts[rng.integers(0, count, count)].mean(0) for _ in range(RESAMPLES)])
    for number, light in enumerate(LIGHTS):
        first = 1 + len(SETTINGS) * number
        shares = {
            setting: (
                100 * verdicts[:, first + at].mean() / verdicts[:, 0].mean(),
                100 * drawn[:, first + at] / drawn[:, 0],
            )
            for at, setting in enumerate(SETTINGS)
        }
        value = place(shares[BRIGHT][0], shares[NOISY][0], shares[DARK][0])
        spread = place(shares[BRIGHT][1], shares[NOISY][1], shares[DARK][1])
        yield Line(f"{name}, lamp {light}: place of setting 26", float(value), _ends(spread, 2))
        for setting in (NOISY, HIGH_ISO):
            share, several = shares[setting]
            yield Line(
                f"{name}, lamp {light}: setting {setting}, % of clean", float(share), _ends(several, 0)
            )


def _ends(values: Numbers, digits: int) -> str:
    low, high = np.percentile(values, (2.5, 97.5))
    return f"95 %: {low:.{digits}f} to {high:.{digits}f}"


def run() -> Iterator[Line]:
    yield from published()
    photos = os.environ.get("SORITES_PHOTOS")
    if not photos:
        yield Line("SORITES_PHOTOS is not set", 0.0, "no photograph was measured")
        return
    for name, options in CAMERAS.items():
        verdicts = answers(photos, int(os.environ.get("SORITES_CAMERA_PHOTOS", PHOTOS)), options)
        yield from lines(f"{name} (n = {len(verdicts)})", verdicts)
