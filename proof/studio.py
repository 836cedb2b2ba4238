"""The virtual studio against the directly simulated camera on 100 images, and policies of
model-friendly capture.

``SORITES_PHOTOS=DIR`` takes labelled photographs instead of the demo's cut-outs;
``SORITES_STUDIO_OUT=DIR`` keeps what is shot, and goes on there after a stop. It takes about a
quarter of an hour of one core.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from proof._lines import Line
from sorites.apps.studio.capture import Options
from sorites.apps.studio.control import ControlOptions, replay
from sorites.apps.studio.devices import DeviceOptions
from sorites.apps.studio.session import Job, capture_all
from sorites.evaluation.run import run as evaluate

IMAGES, SIDE, MODEL = 100, 375, "lite0"


def run() -> Iterator[Line]:
    photos = os.environ.get("SORITES_PHOTOS")
    source = f"folder:{photos}" if photos else "stamps"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(os.environ.get("SORITES_STUDIO_OUT") or scratch)
        yield from agreement(source, out / "capture")
        yield from policies(source, out / "capture")


def agreement(source: str, out: Path) -> Iterator[Line]:
    """Accuracy per setting of photographs that went through screen, camera and straightening, and
    of direct simulation.
    """
    job = Job(source, out, "small", 1, IMAGES, None, DeviceOptions(), Options(originals="drop"), side=SIDE)
    done = capture_all(job, print)
    shot = evaluate(
        "imagenet_es", source=f"imagenet_es:{out}", models=[MODEL], labels="imagenet", out=out / "run"
    )
    references = out / "es-test" / "sampled_tin_no_resize2"
    direct = evaluate(
        "camera",
        source=f"folder:{references}",
        models=[MODEL],
        labels="imagenet",
        options={"grid": "test"},
        out=out / "direct",
    )
    both = cells(shot).join(cells(direct), on=["light", "setting"], suffix="_direct")
    manual = both.filter(pl.col("setting") != "auto")
    yield Line("images", float(done.images), f"{done.wanted} photographs", least=100)
    for light in ("on", "off"):
        own = both.filter(pl.col("light") == light)
        yield Line(
            f"r of accuracy per setting, lamp {light}, {own.height} settings", correlation(own), least=0.97
        )
    yield Line(
        f"r of accuracy per setting, both lights, {both.height} settings", correlation(both), least=0.97
    )
    apart = (manual["accuracy"] - manual["accuracy_direct"]).abs().mean()
    yield Line("mean difference of accuracy, manual settings, points", 100 * float(apart or 0))  # type: ignore[arg-type]
    auto = both.filter(pl.col("setting") == "auto")
    note = f"directly simulated {100 * float(auto['accuracy_direct'].mean() or 0):.1f}"  # type: ignore[arg-type]
    yield Line("accuracy of automatic shots, %", 100 * float(auto["accuracy"].mean() or 0), note)  # type: ignore[arg-type]


def cells(table: pl.LazyFrame) -> pl.DataFrame:
    """Return the accuracy of each setting under each light; automatic shots are one setting."""
    rows = (
        table.filter((pl.col("shift") == "camera") & (pl.col("output") == "label"))
        .select("params", "correct")
        .collect()
    )
    named = [_setting(json.loads(text)) for text in rows["params"]]
    keyed = rows.with_columns(
        light=pl.Series([light for light, _ in named]), setting=pl.Series([key for _, key in named])
    )
    return keyed.group_by("light", "setting").agg(accuracy=pl.col("correct").mean(), n=pl.len())


def _setting(params: dict[str, Any]) -> tuple[str, str]:
    if params["mode"] == "auto":
        return params["light"], "auto"
    return params["light"], f"{params['iso']:g} {params['shutter']:.5f} {params['aperture']:g}"


def correlation(both: pl.DataFrame) -> float:
    return float(np.corrcoef(both["accuracy"], both["accuracy_direct"])[0, 1])


def policies(source: str, out: Path) -> Iterator[Line]:
    """What each policy gains over automatic exposure, and what it costs."""
    table, notes = replay(ControlOptions(Job(source, out), MODEL), out)
    for note in notes:
        print(f"  {note}", flush=True)
    for row in table.iter_rows(named=True):
        low, high, gain = (100 * row[key] for key in ("low", "high", "gain"))
        said = f"{low:.1f} to {high:.1f}, n {row['n']}, {row['shots']:.1f} shots, gain {gain:+.1f}"
        said += f" ({100 * row['gain_low']:+.1f} to {100 * row['gain_high']:+.1f}) points"
        yield Line(f"accuracy, lamp {row['light']}, {row['policy']}, %", 100 * row["accuracy"], said)
