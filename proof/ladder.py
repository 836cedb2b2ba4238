"""The ladder of ImageNet-ES in small: CIFAR photographs through the simulated camera in training,
at other settings in the test.

A small network is trained on CIFAR-10, then fine-tuned on 1200 photographs without captures, and
with captures at the validation settings that each cut by LPIPS keeps. It is tested on photographs
of the test part, clean and at the 54 test settings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proof._lines import Line
from sorites import core
from sorites.core import Model, Sample, to_float, to_uint8
from sorites.core.labels import labels
from sorites.core.rng import hashed_order, rng_for
from sorites.sources.cifar import CLASSES
from sorites.training.captures import settings
from sorites.training.data import images
from sorites.training.loop import train
from sorites.training.recipe import load

SEEDS = (0, 1, 2)
PLAIN, CUTS = "none", ("0.6", "0.8", "1.0")
CAPTURED = 500
"""Test photographs that are captured at all 54 test settings."""
BATCH = 100

Verdicts = NDArray[np.float64]
"""Per seed and photograph: the share of its images that the model got right."""


def models(root: Path) -> dict[str, list[Model]]:
    """Train a model, fine-tune it once per arm and seed, and return the fine-tuned ones by arm."""
    base = train("cifar_optics", root / "base")
    made = {}
    for arm in (PLAIN, *CUTS):
        folders = [
            train(f"cifar_captures@{arm}", root / f"{arm}-{seed}", model=f"trained:{base}", seed=seed)
            for seed in SEEDS
        ]
        made[arm] = [core.model(f"trained:{folder}") for folder in folders]
    return made


def right(model: Model, shown: Sequence[NDArray[np.uint8]], ground_truth: Sequence[int]) -> NDArray[np.bool_]:
    parts = [model(shown[start : start + BATCH], True).logits for start in range(0, len(shown), BATCH)]
    return np.concatenate([part.argmax(1) for part in parts if part is not None]) == np.array(ground_truth)


def clean(some: dict[str, list[Model]], samples: Sequence[Sample]) -> dict[str, Verdicts]:
    shown, ground_truth = [sample.load() for sample in samples], [sample.label or 0 for sample in samples]
    return {
        arm: np.array([right(model, shown, ground_truth) for model in these], float)
        for arm, these in some.items()
    }


def captured(some: dict[str, list[Model]], samples: Sequence[Sample]) -> dict[str, Verdicts]:
    """Return the share of right answers over the test settings."""
    camera, stops = core.shift("camera"), settings("test")
    rows: dict[str, list[list[float]]] = {arm: [] for arm in some}
    for sample in samples:
        shots = camera.sweep(to_float(sample.load()), stops, rng_for(0, sample.id, "camera"))
        shown, ground_truth = [to_uint8(shot) for shot in shots], [sample.label or 0] * len(stops)
        for arm, these in some.items():
            rows[arm].append([float(right(model, shown, ground_truth).mean()) for model in these])
    return {arm: np.array(found).T for arm, found in rows.items()}


def difference(first: Verdicts, other: Verdicts) -> tuple[float, float]:
    """Return the mean difference in points, and its standard error over photographs and seeds together."""
    apart = 100 * (first - other)
    seeds, count = apart.shape
    variance = apart.mean(0).var(ddof=1) / count + (apart.mean(1).var(ddof=1) / seeds if seeds > 1 else 0.0)
    return float(apart.mean()), float(variance**0.5)


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as room:
        yield from measured(models(Path(room)))


def measured(some: dict[str, list[Model]]) -> Iterator[Line]:
    """Yield the figures of the fine-tuned models."""
    for cut in CUTS:
        shots = getattr(images(load(f"cifar_captures@{cut}")).train, "shots", ())
        yield Line(f"validation settings kept by the cut {cut}", len(shots), "of 128")
    tests = hashed_order(core.source("cifar:test", labels(CLASSES)), lambda sample: ["ladder", sample.id])
    whole, taken = clean(some, tests), captured(some, tests[:CAPTURED])
    for arm in some:
        yield Line(
            f"test settings, {arm}",
            100 * taken[arm].mean(),
            f"%, {CAPTURED} photographs x 54, {len(SEEDS)} seeds",
        )
        yield Line(f"clean, {arm}", 100 * whole[arm].mean(), f"%, {len(tests)} photographs")
    for cut in CUTS:
        gain, error = difference(taken[cut], taken[PLAIN])
        yield Line(f"gain on the test settings, cut {cut}", gain, f"+- {1.96 * error:.1f}", least=6)
        gain, error = difference(whole[cut], whole[PLAIN])
        yield Line(f"gain on clean images, cut {cut}", gain, f"+- {1.96 * error:.1f}", least=-3)
    for low, high in (("0.6", "0.8"), ("0.8", "1.0")):
        gain, error = difference(taken[high], taken[low])
        verdict = "below its noise" if abs(gain) < 1.96 * error else "above its noise"
        yield Line(f"cut {high} against {low}, test settings", gain, f"+- {1.96 * error:.1f}: {verdict}")
