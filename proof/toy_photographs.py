"""Photographs of the toy world moved along its slider of snow, on scenes that chose no setting.

Severities are fixed beforehand by how sliders are trained: 0 to 1, where 1 is the trained strength, which are the
defaults of the source ``edited``. The amount of snow is known: how far the ground moved towards white.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from proof._lines import Line
from sorites.core import ImageF32, to_float, to_uint8
from sorites.diffusion.inversion import METHODS, PhotoEdit, edit_photograph
from sorites.diffusion.pipeline import load
from sorites.diffusion.sampler import SamplerOptions
from sorites.diffusion.shelves import Concept, shelf
from sorites.diffusion.toy import world
from sorites.sources.edited import GUIDANCE, SEVERITIES

SALT, SCENES = 101, 16
WHITE = np.array([0.88, 0.92, 0.98])
# The noise step from which sliders act by default, and the one of the figures that were chosen after a try.
STARTS = (750, 600)


def run() -> Iterator[Line]:
    for start in STARTS:
        how = SamplerOptions(20, GUIDANCE, negative="", start=start)
        for method in METHODS:
            yield from _lines(f"{method}, from step {start}", PhotoEdit(method, how))


def _lines(name: str, how: PhotoEdit) -> Iterator[Line]:
    pipe, sliders, judge = load("toy"), shelf("toy"), world.load_classifier("all")
    severities, amounts, kept, errors = (0.0, *SEVERITIES), [], [], []
    for number in range(SCENES):
        index = number % len(world.SHAPES)
        shape, rng = world.SHAPES[index], [SALT, number]
        photo = to_uint8(world.draw(shape, "plain", np.random.default_rng(rng)))
        ground = 1 - world.outline(shape, np.random.default_rng(rng))[..., None]
        slider = sliders.slider(pipe, "snow", Concept(index, shape))
        words = f"a picture of a {shape}"
        found = edit_photograph(pipe, photo, words, slider, severities, how, f"fresh {number}")
        clean = to_float(photo)
        # Severity 0 is the photograph itself; what is drawn there is its reconstruction.
        amounts.append([0.0, *(_amount(image, clean, ground) for image in found[1:])])
        errors.append(-10 * np.log10(np.square(to_float(to_uint8(found[0])) - clean).mean() + 1e-10))
        shown = torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)
        kept.append((judge(shown)[:, : len(world.SHAPES)].argmax(1) == index).numpy())
    pooled = spearmanr(np.tile(severities, SCENES), np.ravel(amounts)).statistic
    within = np.mean([spearmanr(severities, row).statistic for row in amounts])
    levels = ", ".join(f"{amount:.2f}" for amount in np.mean(amounts, 0))
    by_level = ", ".join(f"{share:.2f}" for share in np.mean(kept, 0)[1:])
    yield Line(f"{name}: rank correlation, pooled", float(pooled), f"n {SCENES}; amounts {levels}", least=0.9)
    yield Line(f"{name}: rank correlation within a scene, mean", float(within))
    middle = float(np.mean(kept, 0)[severities.index(0.6)])
    yield Line(f"{name}: class kept at severity 0.6", middle, f"at all: {by_level}", least=0.85)
    yield Line(f"{name}: median PSNR without an edit, dB", float(np.median(errors)), least=25)


def _amount(image: ImageF32, clean: ImageF32, ground: NDArray[np.float64]) -> float:
    veil = (WHITE - clean) * ground
    return float(((image - clean) * veil).sum() / (veil * veil).sum())
