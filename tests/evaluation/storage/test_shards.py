"""Shards of groups of models: found by slice and model, written once, and repeated together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sorites
from sorites.core import Model, table
from sorites.core.errors import Damaged, MissingFile
from sorites.evaluation.plan import Unit
from sorites.evaluation.storage import shards
from sorites.suites.suite import parse

UNIT, OTHER = Unit("jpeg", 0, 16), Unit("jpeg", 16, 32)
MODELS = ("one", "two", "three")
SUITE = parse({"name": "s", "shifts": ["contrast"], "frame": {"resize": 40}, "limit": 4}, "test")


def rows(*models: str) -> dict[str, pl.DataFrame]:
    return {name: table.rows([{"image_id": "a", "model": name, "output": "label"}]) for name in models}


def names(folder: Path, room: str = "predictions") -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / room).iterdir()}


def test_all_models_of_a_run_share_a_shard_and_some_have_their_own(tmp_path: Path) -> None:
    shards.write_rows(tmp_path, "r", UNIT, rows(*MODELS), MODELS)
    shards.write_rows(tmp_path, "r", OTHER, rows("two", "one"), MODELS)
    present = shards.Predictions(tmp_path, MODELS)

    def read(unit: Unit, *models: str) -> pl.DataFrame:
        return shards.read_rows(present.paths(unit, models), models)

    assert len(names(tmp_path)) == 3
    assert len({present.find(UNIT, name) for name in MODELS}) == 1
    assert len({present.find(OTHER, name) for name in MODELS}) == 3
    assert shards.missing(tmp_path, [UNIT, OTHER], MODELS) == {OTHER: ("three",)}
    assert read(UNIT, "three", "one")["model"].to_list() == ["one", "three"]
    assert read(OTHER, "two")["model"].to_list() == ["two"]
    with pytest.raises(MissingFile, match="three"):
        present.paths(OTHER, MODELS)
    assert table.read(tmp_path).collect().height == 5


def test_the_shard_of_one_model_is_named_after_it() -> None:
    assert shards.stem(UNIT, "one") == "jpeg-0000000--one"
    assert shards.stem(UNIT, *MODELS) == shards.stem(UNIT, *reversed(MODELS))
    assert shards.stem(UNIT, *MODELS) != shards.stem(UNIT, *MODELS[:2])


@pytest.fixture
def run(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Callable[..., Path]:
    def go(**more: object) -> Path:
        models = [tiny("one"), tiny("two")]
        sorites.run(SUITE, source=f"folder:{photos}", models=models, out=tmp_path / "r", **more)  # type: ignore[arg-type]
        return tmp_path / "r"

    return go


@pytest.mark.slow
def test_features_that_are_kept_later_leave_the_rows_as_they_are(run: Callable[..., Path]) -> None:
    folder = run()
    before = names(folder)
    run(keep_features=True)
    assert names(folder) == before
    features = names(folder, "features")
    assert len(features) == 2 * len(before)
    lost = next((folder / "features").iterdir())
    lost.unlink()
    run(keep_features=True)
    assert names(folder, "features").keys() == features.keys()
    assert names(folder) == before


@pytest.mark.slow
def test_features_of_an_interrupted_task_are_replaced(run: Callable[..., Path]) -> None:
    folder = run(keep_features=True)
    features = names(folder, "features")
    next((folder / "predictions").glob("contrast-0000000*")).unlink()
    run()
    assert names(folder, "features").keys() == features.keys()
    assert len(list((folder / "replaced" / "features").iterdir())) == 2


@pytest.mark.slow
def test_an_error_of_one_model_repeats_its_slice(run: Callable[..., Path]) -> None:
    folder = run()
    expected = table.read(folder).collect()
    path = next((folder / "predictions").glob("contrast-0000000*"))
    changed = pl.read_parquet(path).with_columns(
        error=pl.when(pl.col("model") == "two").then(pl.lit("model two: no"))
    )
    path.unlink()
    table.write_shard(changed, folder, shards.stem(Unit("contrast", 0, 4), "one", "two"))
    run()
    assert table.read(folder).collect().equals(expected)
    assert len(list((folder / "replaced" / "predictions").iterdir())) == 1


def test_a_damaged_shard_stops_a_resumed_run(run: Callable[..., Path]) -> None:
    folder = run()
    path = next((folder / "predictions").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match=path.name):
        run()
