"""A run folder met again: which of its pictures are others by now, what is done again for that, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import Sample
from sorites.errors import SoritesError
from sorites.pipeline.contents import COLUMNS, changed, contents, guarded
from sorites.pipeline.plan import Plan, with_samples
from sorites.pipeline.stale import redo_changed
from sorites.table import read_file, write

TRAINING = "training.parquet"
"""The training and validation pictures of scorers by their content, beside the manifest."""
Say = Callable[[str], None]

ANOTHER = "Put it back from a copy, or choose another --out DIR."
"""The advice where a file is damaged that cannot be made again from the rest of its run folder."""


def renewed(folder: Path, plan: Plan, samples: Sequence[Sample], listed: pl.DataFrame, moved: str, say: Say) -> pl.DataFrame:
    """Return the manifest of a run folder with the content of its samples as it is now.

    What was made of samples that have changed is set aside, to be done again. ``moved`` says where the pictures lay before, if
    that was elsewhere: they are then taken only if all are known to be the same.
    """
    then = _rows(listed)
    now = contents(samples, then)
    others = [s for s, before, after in zip(samples, then, now.to_dicts(), strict=True) if changed(before, after)]
    if moved:
        unknown = sum(before["content"] is None or after is None for before, after in zip(then, now["content"], strict=True))
        if others or unknown:
            raise SoritesError(
                f"{folder} holds another run ({moved}): {len(others) or unknown} of its {len(samples)} pictures are not known to "
                "be the same in both places. Choose another --out DIR."
            )
    if others:
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
    then = _rows(before) if same and before is not None else []
    now = contents([sample for _, sample in named], then)
    others = [i for i, (was, known) in enumerate(zip(then, now.to_dicts(), strict=False)) if changed(was, known)]
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
    if any(listed.schema.get(name) != kind for name, kind in COLUMNS.items()):
        return plan
    known = {_key(row): row for row in listed.select(*_KEY, *COLUMNS.names()).iter_rows(named=True)}
    every = {id(sample): sample for group in plan.groups.values() for sample in group}
    found = {key: known.get(_key(_about(plan, sample))) for key, sample in every.items()}
    return with_samples(plan, {key: guarded(every[key], row) for key, row in found.items() if row is not None})


_KEY = ("source", "sample_id", "shift", "severity", "params")


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _about(plan: Plan, sample: Sample) -> dict[str, Any]:
    params = json.dumps(dict(sample.setting.params), sort_keys=True)
    severity = sample.setting.severity
    return dict(zip(_KEY, (plan.source_of(sample), sample.id, sample.shift, severity, params), strict=True))


def _rows(listed: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the contents that a manifest holds, row by row; nothing is known where it was written without."""
    held = [name for name, kind in COLUMNS.items() if listed.schema.get(name) == kind]
    return [{**dict.fromkeys(COLUMNS), **row} for row in listed.select(held).to_dicts()] if held else [
        dict.fromkeys(COLUMNS) for _ in range(listed.height)
    ]  # fmt: skip
