from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.conftest import CLASSES, one_shard_per_model

import sorites
from sorites.core import Generated, Model, Sample, Source
from sorites.core import table as tables
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.suites.suite import parse

SAMPLES = 40
"""Three slices: two of sixteen and one of eight."""


def images() -> Source:
    def load(i: int) -> np.ndarray:
        return np.full((24, 24, 3), 40 + 4 * i, np.uint8)

    return Source(
        "mine", [Sample(f"p{i:02d}", Generated(lambda i=i: load(i)), i % 3) for i in range(SAMPLES)]
    )


@pytest.fixture(scope="module")
def whole(tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unfinished") / "run"
    suite = parse({"name": "s", "shifts": ["contrast", "jpeg"], "labels": list(CLASSES)}, "test")
    sorites.run(suite, source=images(), models=[tiny("one"), tiny("two")], levels=[1, 2], out=out, workers=1)
    return out


@pytest.fixture
def stopped(whole: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run with one shard per model, without those whose names match."""

    def make(*gone: str) -> Path:
        shutil.copytree(whole, tmp_path / "run")
        one_shard_per_model(tmp_path / "run")
        for pattern in gone:
            for shard in list((tmp_path / "run" / "predictions").glob(pattern)):
                shard.unlink()
        return tmp_path / "run"

    return make


def test_a_whole_run_has_nothing_missing_and_its_table_is_as_it_is(whole: Path) -> None:
    assert unfinished(whole) is None
    assert sorites.read(whole).collect().equals(tables.read(whole).collect())
    assert len(list((whole / "predictions").iterdir())) == 9


def test_samples_that_a_model_lacks_at_a_setting_are_left_out(stopped: Callable[..., Path]) -> None:
    run = stopped("jpeg-0000016--*", "*-0000032--two*")
    gap = unfinished(run)
    assert gap is not None
    assert (gap.slices, gap.wanted) == (18 - 2 - 3, 18)
    assert gap.counts == {
        "one": {"jpeg": (24, 40)},
        "two": {"jpeg": (16, 40), "clean": (32, 40), "contrast": (32, 40)},
    }
    assert (gap.samples, gap.compared, gap.models, gap.shifts) == (40, 16, (), ())
    with pytest.warns(UserWarning, match="(?s)13 of 18.*16 of 40.*partial=True"):
        table = sorites.read(run).collect()
    held = table.group_by("model", "shift", "severity").agg(pl.col("sample_id").n_unique())
    assert held.height == 2 * 5
    assert set(held["sample_id"]) == {16}
    with pytest.warns(UserWarning, match="Everything available is used"):
        assert sorites.read(run, partial=True).collect().equals(tables.read(run).collect())


def test_what_a_model_has_nothing_of_is_left_out_and_named(stopped: Callable[..., Path]) -> None:
    run = stopped("jpeg-*--two*", "clean-0000032--*")
    gap = unfinished(run)
    assert gap is not None
    assert (gap.shifts, gap.models, gap.compared) == (("jpeg",), (), 32)
    assert set(gap.keep(tables.read(run)).collect()["shift"]) == {"clean", "contrast"}
    assert "without the shifts jpeg" in gap.sentences(partial=False)[1]


def test_a_model_without_any_shard_is_left_out_and_named(stopped: Callable[..., Path]) -> None:
    gap = unfinished(stopped("*--two*"))
    assert gap is not None
    assert (gap.models, gap.shifts, gap.compared) == (("two",), (), 40)
    assert "without the models two" in gap.sentences(partial=False)[1]


def test_where_nothing_can_be_compared_it_says_so(stopped: Callable[..., Path]) -> None:
    run = stopped("*-0000000--one*", "*-0000016--two*", "*-0000032--*")
    with pytest.raises(SoritesError, match="No sample is finished"):
        sorites.read(run)


def test_slices_that_are_not_refined_are_told(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, stopped: Callable[..., Path]
) -> None:
    suite = parse({"name": "s", "shifts": ["contrast"]}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=[tiny()], limit=4, refine=0.1, out=tmp_path / "r")
    assert unfinished(tmp_path / "r") is None
    next((tmp_path / "r" / "predictions").glob("*probe*")).unlink()
    gap = unfinished(tmp_path / "r")
    assert gap is not None
    assert "1 slices are not refined" in gap.found()
    assert (
        gap.keep(tables.read(tmp_path / "r")).collect().height == tables.read(tmp_path / "r").collect().height
    )


def test_a_folder_of_shards_alone_has_no_story(stopped: Callable[..., Path]) -> None:
    run = stopped("jpeg-0000016--*")
    (run / "run.json").unlink()
    assert unfinished(run) is None
    assert sorites.read(run).collect().height == tables.read(run).collect().height


@pytest.mark.slow
def test_the_page_and_the_printed_table_say_it_at_the_top(
    stopped: Callable[..., Path], tmp_path: Path
) -> None:
    run = stopped("jpeg-0000016--*")
    with pytest.warns(Notice, match=r"(?s)16 of 18 slices are evaluated.*the 24 of 40 samples"):
        page = sorites.report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    told = f"{run} is not finished: 16 of 18 slices are evaluated."
    assert told in page[: page.index("<nav")]
    assert "The numbers are based on the 24 of 40 samples that every model has at every setting" in page
    assert "24 samples of mine" in page
    with pytest.warns(Notice, match="16 of 18 slices are evaluated"):
        loose = sorites.report(run, tmp_path / "loose.html", partial=True).read_text(encoding="utf-8")
    assert told in loose
    assert "40 samples of mine" in loose
