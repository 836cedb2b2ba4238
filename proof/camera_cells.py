"""The simulated camera against EfficientNet-B0's table, setting by setting, by several models.

``SORITES_PHOTOS=DIR`` names labelled photographs (class folders, or WordNet ids in the names), none of which was
used to fit the camera; ``SORITES_CAMERA_PHOTOS=N`` takes the first N of the fair order. A photograph takes
about 2.5 s of one core. Each answer counts once per model; photographs are resampled for the intervals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import polars as pl

from proof._lines import Line
from proof.camera_fit import LIGHTS, NUMBER, RESAMPLES, TABLES, Numbers, published, right
from sorites import core
from sorites.core import camera_grid, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.evaluation.samples import hashed_samples
from sorites.suites.suite import Frame

MODELS = ("lite0", "lite1", "lite2")
PHOTOS, SHOTS, AIM = 190, 3, 5.0
"""Photographs, automatic shots per light, and the aim for the difference of a setting in points."""


def answers(photos: str, count: int) -> Numbers:
    """Return correct answers by photograph, model, and image: clean, settings by light, automatic shots by light."""
    models, shift, frame = (
        [core.model(name) for name in MODELS],
        core.shift("camera"),
        Frame(resize=256, crop=224),
    )
    settings = [params for light in LIGHTS for params in camera_grid.manual("test", light)]
    settings += [params for light in LIGHTS for params in camera_grid.auto(light)[:SHOTS]]
    rows = []
    for sample in list(hashed_samples(core.source(f"folder:{photos}")))[:count]:
        image = frame(sample.load())
        made = shift.sweep(to_float(image), settings, rng_for(0, sample.id, shift.name))
        shown = [image, *(to_uint8(shot) for shot in made)]
        rows.append([right(model, shown, sample.label) for model in models])
    return np.array(rows, np.float64)


def apart(verdicts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the differences from the table in points of the clean accuracy: of settings and of automatic shots.

    Args:
        verdicts: Correct answers by photograph and image.
    """
    mean, (grid, auto) = verdicts.mean(0), published()
    settings, shots = mean[1:55].reshape(2, 27), mean[55:].reshape(2, SHOTS).mean(1)
    return 100 * (settings / mean[0] - grid), 100 * (shots / mean[0] - auto)


def lines(name: str, verdicts: Numbers) -> Iterator[Line]:
    """Yield the differences of a model, and the settings whose interval is beyond the aim."""
    rng, count = np.random.default_rng(0), len(verdicts)
    drawn = [apart(verdicts[rng.integers(0, count, count)]) for _ in range(RESAMPLES)]
    grids, autos = np.stack([one[0] for one in drawn]), np.stack([one[1] for one in drawn])
    cells, auto = apart(verdicts)
    low, high = np.percentile(grids, (2.5, 97.5), axis=0)
    for number, light in enumerate(LIGHTS):
        here = f"{name}, lamp {light}"
        ends = np.percentile(autos[:, number], (2.5, 97.5))
        yield Line(f"{here}: automatic less published", auto[number], f"95 %: {ends[0]:.1f} to {ends[1]:.1f}")
        ends = np.percentile(grids[:, number].mean(1), (2.5, 97.5))
        mean = cells[number].mean()
        yield Line(f"{here}: mean difference of the settings", mean, f"95 %: {ends[0]:.1f} to {ends[1]:.1f}")
        yield Line(f"{here}: mean absolute difference", np.abs(cells[number]).mean())
        beyond = np.flatnonzero((low[number] > AIM) | (high[number] < -AIM))
        said = ", ".join(
            f"{cell + 1}: {cells[number, cell]:+.1f} ({low[number, cell]:.1f} to {high[number, cell]:.1f})"
            for cell in beyond
        )
        yield Line(f"{here}: settings whose interval excludes {AIM:g} points", float(len(beyond)), said)
        inside = (low[number] >= -AIM) & (high[number] <= AIM)
        yield Line(f"{here}: settings whose interval is within {AIM:g} points", float(inside.sum()))


def published_models() -> Iterator[Line]:
    """Yield how much the published models differ from EfficientNet-B0, relative to their best setting."""
    table = pl.read_csv(TABLES / "imagenet_es_tables.tsv", separator="\t").sort("table", "number")
    shares = {
        number: rows.select("on", "off").to_numpy() / rows.select("on", "off").to_numpy().max()
        for (number,), rows in table.group_by("table", maintain_order=True)
    }
    names = dict(table.select("table", "model").unique().rows())
    for number in sorted(set(shares) - {NUMBER}):
        difference = 100 * (shares[number] - shares[NUMBER])
        on, off = difference[25]
        note = f"setting 26: {on:+.1f} and {off:+.1f}"
        yield Line(
            f"published {names[number]}: mean absolute difference", float(np.abs(difference).mean()), note
        )


def run() -> Iterator[Line]:
    yield from published_models()
    photos = os.environ.get("SORITES_PHOTOS")
    if not photos:
        yield Line("SORITES_PHOTOS is not set", 0.0, "no photograph was measured")
        return
    verdicts = answers(photos, int(os.environ.get("SORITES_CAMERA_PHOTOS", PHOTOS)))
    yield Line("photographs", float(len(verdicts)))
    for number, name in enumerate(MODELS):
        yield from lines(name, verdicts[:, number])
    yield from lines("mean of the models", verdicts.mean(1))
