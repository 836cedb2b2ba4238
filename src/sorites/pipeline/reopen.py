"""A run folder opened again: its plan, made anew from ``run.json``, and the samples of its manifest where pictures are gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sorites.core import Attr, Picture, Sample, Setting, Source
from sorites.errors import BadPicture, SoritesError
from sorites.pipeline import plan as plans
from sorites.pipeline.folder import read_info, read_manifest
from sorites.pipeline.plan import Plan
from sorites.suite import Suite, parse


def suite_of(info: Mapping[str, Any]) -> Suite:
    """The suite as ``run.json`` keeps it."""
    return parse(dict(info["suite"]), "run.json")


def plan_of(run: str | Path) -> Plan:
    """Make the plan of a run folder again: the same source, frame, draws and rounding give the same pixels.

    No model is loaded and no training picture is listed. A run whose pictures are not at hand still has its plan: the samples
    then come from the manifest, and decoding one of them is an error that says why.
    """
    info = read_info(run)
    alone = suite_of(info).model_copy(update={"models": (), "fit": None})
    if "imported" in info:
        return plans.make(alone, _from_manifest(run, SoritesError("it was made of prediction files by sorites import")))
    try:
        return plans.make(alone)
    except SoritesError as error:
        return plans.make(alone, _from_manifest(run, error))


def _from_manifest(run: str | Path, why: SoritesError) -> Source:
    def load() -> Picture:
        raise BadPicture(f"the pictures of {run} are not at hand: {why}")

    rows = read_manifest(run).to_dicts()
    return Source(rows[0]["source"] if rows else "", [_sample(row, load) for row in rows])


def _sample(row: Mapping[str, Any], load: Any) -> Sample:
    return Sample(
        row["sample_id"],
        load,
        row["label"],
        frozenset(row["accept"]),
        attrs=tuple(Attr(**attr) for attr in row["attrs"]),
        split=row["split"],
        shift=row["shift"],
        setting=Setting(row["severity"], json.loads(row["params"]), row.get("level")),
        framed=bool(row.get("framed")),
        image_id=row.get("image_id"),
    )
