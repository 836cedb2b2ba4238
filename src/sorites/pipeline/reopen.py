"""A run folder opened again: its plan, made anew from ``run.json``, and the samples of its manifest where pictures are gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sorites.core import Attr, Picture, Sample, Setting, Source, split_spec
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
    try:
        if "imported" in info:
            raise SoritesError("it was made of prediction files by sorites import")
        return plans.make(alone)
    except SoritesError as error:
        first, further = _from_manifest(run, alone, error)
        return plans.make(alone, first, further=further)


def _from_manifest(run: str | Path, suite: Suite, why: SoritesError) -> tuple[Source, dict[str, Source]]:
    """Return the first source and the further ones with the samples that the manifest lists; none can be decoded."""

    def load() -> Picture:
        raise BadPicture(f"the pictures of {run} are not at hand: {why}")

    found: dict[str, list[Sample]] = {entry.name: [] for entry in suite.sources}
    first: list[Sample] = []
    for row in read_manifest(run).to_dicts():
        place, name = found.get(row["source"], first), row["source"]
        short = row["sample_id"].removeprefix(f"{name}/") if name in found else row["sample_id"]
        place.append(_sample({**row, "sample_id": short}, load))
    return Source(split_spec(suite.source)[0], first), {name: Source(name, some) for name, some in found.items()}


def _sample(row: Mapping[str, Any], load: Any) -> Sample:
    try:
        params = dict(json.loads(row["params"] or "{}"))
    except (TypeError, ValueError) as error:
        raise SoritesError(f"manifest.parquet: the params of {row['sample_id']} are not JSON: {error}") from error
    return Sample(
        row["sample_id"],
        load,
        row["label"],
        frozenset(row["accept"] or ()),
        attrs=tuple(Attr(**attr) for attr in row["attrs"] or ()),
        split=row["split"],
        shift=row["shift"],
        setting=Setting(row["severity"], params, row.get("level")),
        framed=bool(row.get("framed")),
        image_id=row.get("image_id"),
    )
