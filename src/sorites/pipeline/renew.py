"""A run folder met again: which of its pictures are others by now, what is done again for that, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import Sample
from sorites.errors import SoritesError
from sorites.pipeline.contents import COLUMNS, changed, contents, guarded
from sorites.pipeline.plan import Plan, with_changed
from sorites.pipeline.stale import redo_changed
from sorites.table import read_file, write
from sorites.types.packed import PackedSamples

TRAINING = "training.parquet"
"""The training and validation pictures of scorers by their content, beside the manifest."""
Say = Callable[[str], None]

ANOTHER = "Put it back from a copy, or choose another --out DIR."
"""The advice where a file is damaged that cannot be made again from the rest of its run folder."""


def renewed(folder: Path, plan: Plan, samples: PackedSamples, listed: pl.DataFrame, moved: str, say: Say) -> pl.DataFrame:
    """Return the manifest of a run folder with the content of its samples as it is now.

    What was made of samples that have changed is set aside, to be done again. ``moved`` says where the pictures lay before, if
    that was elsewhere: they are then taken only if all are known to be the same.
    """
    then = contents_of(listed)
    now = contents(samples, then)
    pairs = zip(then.iter_rows(named=True), now.iter_rows(named=True), strict=True)
    places = [place for place, (before, after) in enumerate(pairs) if changed(before, after)]
    others = samples.take(places)
    if moved:
        unknown = int((then["content"].is_null() | now["content"].is_null()).sum())
        if places or unknown:
            raise SoritesError(
                f"{folder} holds another run ({moved}): {len(others) or unknown} of its {len(samples)} pictures are not known to "
                "be the same in both places. Choose another --out DIR."
            )
    if places:
        facts = redo_changed(folder, plan, others)
        also = f"; facts of theirs are gone until they are measured again: {', '.join(facts)}" if facts else ""
        say(f"{len(others)} of {len(samples)} pictures have changed since {folder} looked at them, and are done again{also}")
    return listed.drop(COLUMNS.names(), strict=False).hstack(now)


def check_training(folder: Path, plan: Plan) -> None:
    """Refuse to go on where training or validation pictures have changed: every fitted score follows from all of them."""
    kinds = (("training", plan.fit), ("validation", plan.validation), ("strange validation", plan.strange))
    named = [(kind, sample) for kind, samples in kinds for sample in samples]
    if not named:
        return
    keys = pl.DataFrame({"kind": [kind for kind, _ in named], "sample_id": [sample.id for _, sample in named]})
    path = folder / TRAINING
    before = read_file(path, COLUMNS, ("kind", "sample_id"), ANOTHER) if path.exists() else None
    same = before is not None and before.select("kind", "sample_id").equals(keys)
    then = contents_of(before) if same and before is not None else None
    now = contents([sample for _, sample in named], then)
    rows = () if then is None else zip(then.iter_rows(named=True), now.iter_rows(named=True), strict=True)
    others = [i for i, (was, known) in enumerate(rows) if changed(was, known)]
    if others:
        kind, sample = named[others[0]]
        raise SoritesError(
            f"{len(others)} pictures that the scorers of {folder} were fitted on have changed since, first the {kind} picture "
            f"{sample.id}. Choose another --out DIR."
        )
    kept = keys.hstack(now)
    if before is None or not kept.equals(before):
        write(kept, path)


def guard(plan: Plan, listed: pl.DataFrame) -> Plan:
    """Return the plan with samples that cannot be decoded once they are others than those that the run looked at."""
    find = _finder(listed.select(*_KEY, *COLUMNS.names()))

    def change(sample: Sample) -> Sample:
        row = find(_key(_about(plan, sample)))
        return sample if row is None else guarded(sample, row)

    return with_changed(plan, change)


FEW = 1_000_000
"""Rows of a manifest that are kept as a dict, which answers at once; beyond that it would take gigabytes."""


def _finder(kept: pl.DataFrame) -> Callable[[tuple[Any, ...]], Mapping[str, Any] | None]:
    """Return a function that finds the row of a key, or None."""
    if kept.height <= FEW:
        return {_key(row): row for row in kept.iter_rows(named=True)}.get
    known = _ByText(kept["sample_id"])

    def find(key: tuple[Any, ...]) -> Mapping[str, Any] | None:
        rows = (kept.row(place, named=True) for place in reversed(known.places(key[_KEY.index("sample_id")])))
        return next((row for row in rows if _key(row) == key), None)

    return find


class _ByText:
    """The places of texts in a column, found by their hashes: for many texts this takes less than a dict."""

    def __init__(self, texts: pl.Series) -> None:
        hashes = texts.hash().to_numpy()
        self._texts, self._order = texts, np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def places(self, text: str) -> list[int]:
        """Return where a text stands, in order."""
        one = pl.Series([text], dtype=pl.String).hash()[0]
        low, high = (np.searchsorted(self._hashes, np.uint64(one), side) for side in ("left", "right"))
        return [place for place in self._order[low:high].tolist() if self._texts[place] == text]


_KEY = ("source", "sample_id", "shift", "severity", "params")


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _about(plan: Plan, sample: Sample) -> dict[str, Any]:
    params = json.dumps(dict(sample.setting.params), sort_keys=True)
    severity = sample.setting.severity
    return dict(zip(_KEY, (plan.source_of(sample), sample.id, sample.shift, severity, params), strict=True))


def contents_of(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the contents that a manifest holds, row by row."""
    return listed.select(COLUMNS.names())
