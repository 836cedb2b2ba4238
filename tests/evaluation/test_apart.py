"""Models of one name in several runs are told apart by their versions, and only where these differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import CLASSES

import sorites
from sorites.core import ImageU8
from sorites.evaluation.combine import distinct_names, renamed, short_version
from sorites.evaluation.storage.schema import RunRecord
from sorites.reports.report import load_views
from sorites.reports.view import merge
from sorites.suites.suite import Suite, parse


def record(reference: str | None = None, **fields: Any) -> RunRecord:
    return RunRecord(run_id="r", suite=Suite(name="s", reference=reference), settings={}, **fields)


def test_names_say_the_version_only_where_versions_differ() -> None:
    first = record(models={"a": "1a2b3c4d", "b": "77"})
    second = record(models={"a": "1a2b3cff", "b": "77", "c": ""})
    assert distinct_names([first, second]) == [{"a": "a (1a2b3c4)"}, {"a": "a (1a2b3cf)"}]
    assert distinct_names([first, first]) == [{}, {}]
    assert distinct_names([first, None, record(models={"a": ""})]) == [
        {"a": "a (1a2b3c)"},
        {},
        {"a": "a (no version)"},
    ]


def test_a_version_is_as_long_as_it_must_be() -> None:
    assert short_version("abcdefgh", ["abcdefxx"]) == "abcdefg"
    assert short_version("ab") == "ab"


def test_all_that_is_said_of_a_model_follows_its_name() -> None:
    first, other = (
        record(reference=name, models={name: "1"}, parameters={name: 5}, not_repeating=(name,))
        for name in ("a", "a (1)")
    )
    assert renamed(first, {"a": "a (1)"}) == other
    assert renamed(None, {"a": "a (1)"}) is None


@pytest.mark.slow
def test_a_model_before_and_after_training_are_two_in_one_page(photos: Path, tmp_path: Path) -> None:
    def net(weight: float) -> Any:
        held = np.array(weight)

        def model(images: list[ImageU8]) -> Any:
            return np.stack([np.append(p.mean(axis=(0, 1)) * held, p.std()) for p in images])

        return model

    suite = parse({"name": "s", "shifts": [{"name": "jpeg", "levels": [1]}]}, "test")
    options: dict[str, Any] = {"source": f"folder:{photos}", "labels": CLASSES, "limit": 5}
    for place, weight in (("a", 1.0), ("b", 9.0)):
        sorites.run(suite, models=[net(weight)], out=tmp_path / place, keep_features=True, **options)
    view = merge([one for place in "ab" for one in load_views(tmp_path / place)])
    assert len(view.models) == 2
    assert all(re.fullmatch(r"model \([0-9a-f]{6}\)", name) for name in view.models)
    assert view.table.collect().height == 20
    page = sorites.report([tmp_path / "a", tmp_path / "b"], tmp_path / "page.html").read_text()
    for name in view.models:
        assert name in page
    same = merge([one for place in "aa" for one in load_views(tmp_path / place)])
    assert same.models == ("model",)
