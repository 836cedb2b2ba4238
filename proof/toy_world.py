"""The toy world made again: the pipeline is trained, passes its gate, gets its sliders, and what
must hold of them is measured.

``SORITES_TOY_OUT=DIR python -m proof toy_world`` also writes the files that the package ships:
pipeline, classifiers, sliders.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tools.toy_world import caption

from proof._lines import Line
from proof._toy_training import trained
from sorites.apps.generation.concepts import TOY_SHIFTS, concepts
from sorites.apps.generation.recipes import TOY
from sorites.apps.generation.sliders import train_sliders
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import TOY_DRAWING, Request, along, sample
from sorites.diffusion.shelves import shelf
from sorites.diffusion.toy.world import KINDS, SHAPES, STYLES
from tools import toy_world as world

GATE = 0.95
SEEDS = range(1, 11)
SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(os.environ.get("SORITES_TOY_OUT") or scratch)
        for kind in KINDS:
            network = world.train(kind)
            images, shape = world.draw_samples(400, STYLES[0])
            yield Line(
                f"classifier {kind}: shape right on real plain images",
                _right(network, images, shape),
                least=0.99,
            )
        halved(trained()).save_pretrained(out / "pipeline")
        pipe = load(out / "pipeline")
        yield from gate(pipe)
        train_sliders(pipe, concepts("toy"), TOY_SHIFTS, TOY, out / "sliders", TOY_DRAWING)
        yield from measured(pipe, out / "sliders")


def halved(pipe: Any) -> Any:
    """Return the pipeline with its weights in half precision, as they are shipped."""
    for part in (pipe.unet, pipe.vae, pipe.text_encoder):
        part.half()
    return pipe


def _right(network: Any, images: list[Any], shape: Any) -> float:
    import torch

    with torch.no_grad():
        out = network(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) - 0.5)
    return float((out[:, : len(SHAPES)].argmax(1).numpy() == shape).mean())


def gate(pipe: Pipe) -> Iterator[Line]:
    """Measure how often the classifier finds the shape and the style that the words asked for."""
    cells = [(i, j) for i in range(len(SHAPES)) for j in range(len(STYLES)) for _ in SEEDS]
    seeds = [seed for _ in range(len(SHAPES) * len(STYLES)) for seed in SEEDS]
    asked = [Request(caption(SHAPES[i], STYLES[j]), seed) for (i, j), seed in zip(cells, seeds, strict=True)]
    shape, style = world.opinions([row[0] for row in sample(pipe, asked, TOY_DRAWING)])
    want = np.array(cells)
    yield Line(
        "gate: shape right on generated images",
        float((shape.argmax(1) == want[:, 0]).mean()),
        f"n {len(want)}",
        GATE,
    )
    yield Line(
        "gate: style right on generated images",
        float((style.argmax(1) == want[:, 1]).mean()),
        f"n {len(want)}",
        GATE,
    )


def measured(pipe: Pipe, folder: Path) -> Iterator[Line]:
    """Measure P(shift) and the class along every kind of slider."""
    from scipy.stats import spearmanr

    sliders = shelf(folder)
    for shift in sliders.shifts:
        asked = [
            along(caption(one.name), seed, sliders.slider(pipe, shift, one), SEVERITIES)
            for one in sliders.concepts
            for seed in SEEDS
        ]
        drawn = sample(pipe, asked, TOY_DRAWING)
        shape, style = world.opinions([image for row in drawn for image in row])
        moved = style[:, STYLES.index(shift)].reshape(len(asked), -1).mean(0)
        ground_truth = np.repeat([one.number for one in sliders.concepts], len(SEEDS))
        kept = (shape.argmax(1).reshape(len(asked), -1) == ground_truth[:, None]).mean(0)
        note = " ".join(f"{p:.2f}/{k:.2f}" for p, k in zip(moved, kept, strict=True))
        first = int(np.argmax(moved > 0.9)) if (moved > 0.9).any() else len(moved) - 1
        yield Line(
            f"{shift}: P(shift) at severity 0",
            float(moved[0]),
            f"P(shift)/class by severity: {note}",
            most=0.05,
        )
        yield Line(f"{shift}: P(shift) at the top", float(moved[-1]), least=0.95)
        yield Line(
            f"{shift}: rank correlation with the severity",
            float(spearmanr(SEVERITIES, moved).statistic),
            least=0.9,
        )
        yield Line(f"{shift}: class kept until P(shift) passes .9", float(kept[: first + 1].min()), least=0.9)
