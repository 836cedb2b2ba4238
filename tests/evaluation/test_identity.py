"""What a run's id follows from, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sorites import core
from sorites.core import Model
from sorites.evaluation import plan
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage.record import describe
from sorites.evaluation.storage.schema import RunRecord
from sorites.suites import suite
from sorites.suites.suite import parse

SUITE = {"name": "s", "shifts": ["jpeg"], "models": ["tiny"]}


@pytest.fixture
def make(photos: Path, tiny: Callable[..., Model]) -> Callable[..., Plan]:
    def planned(**more: Any) -> Plan:
        recipe = parse({**SUITE, "source": f"folder:{photos}", "limit": 4, **more}, "test")
        return plan.make(recipe, models={name: tiny(name) for name in recipe.models})

    return planned


def test_what_a_run_is_follows_from_what_makes_its_numbers(make: Callable[..., Plan]) -> None:
    record = describe(make())
    assert record.settings == {"jpeg": (75, 82, 85, 90, 93)}
    assert record.models == {"tiny": "1"}
    assert {"numpy", "pillow"} <= set(record.versions)
    assert "sorites" not in record.versions
    assert RunRecord.model_validate(json.loads(json.dumps(record.as_json()))) == record
    assert describe(make(about="x", refine=0.1)).run_id == record.run_id
    others = [
        make(seed=1),
        make(limit=5),
        make(shifts=["contrast"]),
        make(frame={"resize": 32}),
        make(models=["tiny", "two"]),
    ]
    ids = {describe(other).run_id for other in others}
    assert len(ids | {record.run_id}) == 6


def test_the_labels_in_a_file_are_part_of_the_run(
    make: Callable[..., Plan], tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    names, ids = tmp_path / "classes.txt", []
    for last in ("crow", "rook"):
        names.write_text(f"n01440764\nn01443537\nn01484850\nn01491361\n{last}\n")
        ids.append(describe(make(labels=str(names))).run_id)
    assert ids[0] != ids[1]


def test_a_key_enters_the_id_only_where_it_is_set(
    make: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite key added by a later release must not move the id of a suite that does not use it."""
    before = describe(make(frame={"resize": 40})).run_id

    class LaterFrame(suite.Frame):
        angle: float = 0.0

    class LaterSuite(suite.Suite):
        frame: LaterFrame | None = None
        later: int = 3

    monkeypatch.setattr(suite, "Suite", LaterSuite)
    assert describe(make(frame={"resize": 40})).run_id == before
    assert describe(make(frame={"resize": 40}, later=4)).run_id != before
    assert describe(make(frame={"resize": 40, "angle": 1.0})).run_id != before


def test_defaults_that_are_spelled_out_are_the_same_run(make: Callable[..., Plan]) -> None:
    assert describe(make(seed=0, labels="imagenet", scorers=[])).run_id == describe(make()).run_id


def test_a_scorer_has_a_version_in_the_id(make: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    class numbers(core.Scorer):
        version: ClassVar = 1

        def __call__(self, outputs: core.Outputs) -> Any:
            return outputs.logits.max(axis=1)

    monkeypatch.setitem(core.SCORERS._objects, "numbers", numbers)
    before = describe(make(scorers=["numbers"]))
    assert before.scorers == {"numbers": 1}
    numbers.version = 2
    assert describe(make(scorers=["numbers"])).run_id != before.run_id
