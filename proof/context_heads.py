"""Heads on context composites, split by object: the gain of training on uncommon settings, its
control, and a leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from proof._lines import Line
from sorites import core
from sorites.datasets.context import build_context
from sorites.io.files import cache
from sorites.training.heads import HeadData, accuracies, features, gains, head_data, leak

SEEDS = range(6)


def composites(root: Path) -> tuple[HeadData, HeadData]:
    """Return composites of all built-in cut-outs with lite0's features, in coarse classes and in ImageNet's.

    They are made in ``root`` where they are not there yet.
    """
    build_context(root)
    samples = core.source(f"context:{root}").samples
    found = features(samples, core.model("lite0"))
    return head_data(samples, found), head_data(
        samples, found, {sample.id: str(sample.label) for sample in samples}
    )


def run() -> Iterator[Line]:
    data, fine = composites(cache("proof", "context"))
    yield Line("coarse classes", len(data.names), ", ".join(data.names))
    yield Line("objects", len(set(data.objects)), f"{len(data.objects)} images")
    found = accuracies(data, SEEDS)
    for arm, level, accuracy in (
        found.group_by("arm", "level").agg(pl.col("accuracy").mean()).sort("arm", "level").rows()
    ):
        yield Line(f"accuracy at P{level}, head of {arm}", 100 * accuracy, "%")
    rows = gains(found).rows(named=True)
    for row in rows:
        bar = -4 if row["arm"] == "all" and row["level"] == 0 else None
        note = f"95 % {row['low']:+.1f} to {row['high']:+.1f} over {row['seeds']} seeds"
        yield Line(f"gain at P{row['level']}, {row['arm']} settings", row["gain"], note, least=bar)
    for arm, bar in (("all", 4.0), ("equal", None)):
        uncommon = [row["gain"] for row in rows if row["arm"] == arm and row["level"] > 0]
        note = (
            "the control: one image of each object, as the head of common settings has"
            if arm == "equal"
            else ""
        )
        yield Line(f"mean gain on P1 to P3, {arm} settings", sum(uncommon) / len(uncommon), note, least=bar)
    for called, these in (("coarse", data), ("ImageNet's", fine)):
        obj, image = (
            100 * values.mean() for values in leak(these, SEEDS).select("object", "image").to_numpy().T
        )
        yield Line(f"accuracy in {called} classes, split by object", obj, "%")
        yield Line(
            f"accuracy in {called} classes, split by image",
            image,
            "%: the same objects on both sides; Split refuses it",
        )
        yield Line(f"points that are not there, {called} classes", image - obj)
