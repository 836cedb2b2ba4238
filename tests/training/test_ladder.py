"""Table 6 of ImageNet-ES as one command, on photographs of objects in the published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.training import layouts

from sorites import core
from sorites.core.errors import SoritesError
from sorites.sources.papers.imagenet_es import PARTS
from sorites.suites.suite import load as load_suite
from sorites.training.ladder import CORRUPTIONS, corruption_suite, ladder, rungs
from sorites.training.options import LadderOptions
from sorites.training.recipe import load

pytest.importorskip("torch")
SMALL: dict[str, Any] = {"model": "small", "steps": 2, "batch": 2, "keep_head": False, "size": 32}


def dataset(root: Path) -> Path:
    for part in PARTS:
        (root / part.folder).mkdir(parents=True)
    return root


def test_the_trainings_are_those_of_the_table(tmp_path: Path) -> None:
    """Three without a cut, three at three cuts; source, validation, cut and final rate are those of each."""
    root = dataset(tmp_path / "ImageNet-ES")
    for name in ("EDSR", "CAE"):
        (tmp_path / name).mkdir()
    climbed = rungs(LadderOptions(root=root, out="o", changes={"batch": 64}), root)
    assert [rung.name for rung in climbed] == [
        "1", "2", "3", *(f"{number}@{cut}" for number in (4, 5, 6) for cut in ("0.6", "0.8", "1"))
    ]  # fmt: skip
    for rung in climbed:
        recipe = rung.recipe(load("imagenet_es_ladder@1"))
        assert recipe.data.source == f"imagenet_es:{root}/es-val"
        assert recipe.data.validation is not None
        assert (recipe.data.validation.source, recipe.data.validation.shifted) == (
            f"imagenet_es:{root}/es-test",
            True,
        )
        assert (recipe.data.captures.cut if recipe.data.captures else None) == rung.cut
        assert recipe.schedule.floor == pytest.approx(1e-6 * 256 / 64)


def test_missing_parts_are_refused_by_name(tmp_path: Path) -> None:
    root = dataset(tmp_path / "ImageNet-ES")
    options = LadderOptions(root=root, out="o")
    with pytest.raises(SoritesError, match="EDSR"):
        rungs(options, root)
    with pytest.raises(SoritesError, match="1 to 6"):
        rungs(LadderOptions(root=root, out="o", experiments=(0,)), root)
    with pytest.raises(SoritesError, match="es-val"):
        ladder(tmp_path / "nothing", tmp_path / "out")


def test_corruptions_are_the_published_fifteen_at_five_levels() -> None:
    suite = corruption_suite()
    assert len(suite.shifts) == len(CORRUPTIONS) == 15
    assert all(dial.levels == (1, 2, 3, 4, 5) for dial in suite.shifts)
    assert len(suite.labels) == 200


@pytest.mark.slow
def test_the_ladder_is_trained_evaluated_and_continued(tmp_path: Path) -> None:
    try:
        root = layouts.imagenet_es(tmp_path, objects=2)
    except SoritesError as error:
        pytest.skip(f"the photographs cannot be fetched: {error}")
    out, how = tmp_path / "out", {**SMALL, "levels": [3], "workers": 2}
    made = ladder(root, out, experiments=[1, 4], cuts=[0.8], **how)
    assert made.table.select("experiment", "cut").rows() == [(1, None), (4, 0.8)]
    assert made.table["in_n"].to_list() == made.table["es_n"].to_list() == [2, 2]
    for column in ("in", "in_c", "es"):
        rows = made.table.filter(pl.col(column).is_between(pl.col(f"{column}_low"), pl.col(f"{column}_high")))
        assert rows.height == 2
    model = core.model(f"trained:{out / 'models' / '4@0.8'}")
    samples = [s for s in core.source(f"imagenet_es:{root}/es-test") if s.shift == "camera"]
    ids = model.labels or ()
    manual = [s for s in samples if s.setting.params and s.setting.params["mode"] == "manual"]
    frame = load_suite("imagenet_es").frame
    assert frame is not None
    logits = model([frame(s.load()) for s in manual], True).logits
    assert logits is not None
    right = [ids[place] == s.id.split("/")[0] for place, s in zip(logits.argmax(1), manual, strict=True)]
    assert made.table["es"][1] == pytest.approx(np.mean(right))
    times = {path: path.stat().st_mtime_ns for path in out.glob("models/*/model.safetensors")}
    more = ladder(root, out, experiments=[6, 4], cuts=[0.8], **how)
    assert more.table.select("experiment", "cut").rows() == [(4, 0.8), (6, 0.8)]
    assert more.table.filter(experiment=4, cut=0.8).equals(made.table.filter(experiment=4))
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert pl.read_csv(more.file).height == 2
