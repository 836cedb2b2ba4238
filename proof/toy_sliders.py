"""The shipped toy world: what a far larger eta does to the class, what the filter makes of it, and refined failure points."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from proof._lines import Line
from sorites import core
from sorites import run as run_suite
from sorites.core import to_picture
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.requests import TOY_DRAWING, along
from sorites.diffusion.sampler import sample
from sorites.diffusion.toy import judge
from sorites.diffusion.toy.pictures import SHAPES, caption
from sorites.generation.recipe import TOY
from sorites.generation.training import trained
from sorites.labels import labels
from sorites.pipeline.out_of_class import calibrate, quality, similarities

SEVERITIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
LARGE = 4.0
"""Four times the toy's own eta; it is that of the released trainer."""
SEEDS = range(1, 11)
GRID = tuple(round(float(s), 4) for s in np.linspace(0, 2.5, 41))


def run() -> Iterator[Line]:
    yield from filtered(load("toy"))
    yield from refined()


def filtered(pipe: Pipe) -> Iterator[Line]:
    """Lose the class on purpose, and see what the filter catches, calibrated on half of the seeds and judged on the others.

    Whether a class is lost is said by a classifier of its own seed, which the filter's encoders know nothing of.
    """
    import torch

    from sorites.core import referee

    truth, encoder, rows = judge.train("all", seed=5), referee("toy"), []
    for shape in ("disc", "square"):
        slider = trained(pipe, shape, "snow", replace(TOY, eta=LARGE), Path(tempfile.mkdtemp()) / "state")
        drawn = sample(pipe, [along(caption(shape), seed, slider, SEVERITIES) for seed in SEEDS], TOY_DRAWING)
        for seed, row in zip(SEEDS, drawn, strict=True):
            with torch.no_grad():
                out = truth(torch.from_numpy(np.stack(row)).permute(0, 3, 1, 2) - 0.5)
            lost = (out[:, : len(SHAPES)].argmax(1).numpy() != SHAPES.index(shape)).tolist()
            pictures = [to_picture(image) for image in row]
            words = ([f"a photo of a {shape}"] * len(row), [f"a photo of a {shape} in snow"] * len(row))
            joint = (lambda some: encoder.images(some, True)), encoder.texts
            scores = similarities(pictures, [pictures[0]] * len(row), words, joint, joint[0])
            rows.append(scores.with_columns(outside=pl.Series(lost), half=pl.lit(seed % 2), severity=pl.Series(SEVERITIES)))
    frame = pl.concat(rows).filter(pl.col("severity") > 0)
    one, other = (frame.filter(pl.col("half") == half) for half in (0, 1))
    yield Line(f"eta {LARGE:g}: share of pictures that lost their class", float(frame["outside"].mean()), f"n {len(frame)}")  # type: ignore[arg-type]
    found = quality(other, calibrate(one)).filter(pl.col("filter") == "paper").row(0, named=True)
    yield Line("filter: out-of-class pictures caught (paper .88)", found["tpr"] or 0.0, f"n {found['n']}", least=0.9)
    yield Line("filter: other pictures kept (paper .88)", 1 - (found["fpr"] or 0.0), f"n {found['n']}", least=0.85)


def refined(seeds: int = 20) -> Iterator[Line]:
    """Bisect failure points on newly drawn pictures, and look for a crossing near each on a grid of 41 severities.

    Only the places of the grid that can hold a crossing within a step of the point are drawn.
    """
    source = f"slider:toy?seeds={seeds}"
    with tempfile.TemporaryDirectory() as out:
        table = run_suite("slider_demo", source=source, models=["toy:plain"], refine=0.02, out=out)
        points = core_points(table)
    model, space = core.model("toy:plain"), labels(list(SHAPES))
    samples = {one.id: one for one in core.source(source, space)}
    near, step = [], GRID[1] - GRID[0]
    for sample_id, shift, point in points:
        one = samples[sample_id]
        dial = one.dial(shift)
        assert dial is not None
        places = [s for s in GRID if point - 2.5 * step <= s <= point + 1.5 * step]
        shown = [to_picture(image) for image in dial.sweep(places)]
        logits = model(shown, True).logits
        assert logits is not None
        right = logits.argmax(1) == one.label
        falls = [(places[i], places[i + 1]) for i in range(len(places) - 1) if right[i] and not right[i + 1]]
        near.append(any(low - step <= point <= high + step for low, high in falls))
    yield Line("refined: trajectories with a failure point", float(len(near)), least=40)
    yield Line("refined: a crossing of the 41-severity grid within a step", float(np.mean(near)), f"n {len(near)}", least=0.95)


def core_points(table: pl.LazyFrame | pl.DataFrame) -> list[tuple[str, str, float]]:
    """Return sample, shift and failure point of the trajectories that start right and fail."""
    from sorites.metrics import trajectories

    frame = trajectories(table, ["shift", "sample_id"])
    found = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
    some = found.filter(pl.col("failure").is_not_null() & (pl.col("failure") > 0))
    return list(some.select("sample_id", "shift", "failure").iter_rows())
