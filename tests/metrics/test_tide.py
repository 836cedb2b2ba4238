"""TIDE errors against tidecv and hotcoco, and the known differences from each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.metrics import box_sets

from sorites.metrics.detection import coco, tide


def costs(scene: Any) -> dict[str, float]:
    _, found, _ = tide.errors(scene, None)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return {"": means[""], **{name: tide.cost(name, means[name], means[""]) for name in tide.ERRORS}}


def scene_for_tidecv(seed: int) -> Any:
    return box_sets.random_scene(seed, images=40, classes=1 + seed % 4, crowds=0.1 * (seed % 3), ties=False)


@pytest.mark.parametrize("seed", range(20))
def test_errors_are_tidecvs_where_its_slips_do_not_bite(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """No ties in confidence, every class with objects and found ones, and recalls k / 100 instead of
    COCO's k times 0.01.
    """
    monkeypatch.setattr(coco, "RECALLS", np.arange(101) / 100)
    theirs = pl.read_csv(Path(__file__).parent / "tidecv.tsv", separator="\t").row(seed, named=True)
    wanted = {"" if name == "AP50" else name: value for name, value in theirs.items() if name != "seed"}
    assert costs(scene_for_tidecv(seed)) == pytest.approx(wanted, rel=0, abs=1e-9)


def test_the_file_is_what_tidecv_gives() -> None:
    """tidecv wants another build of OpenCV than ours, so that it is no part of the development install."""
    pytest.importorskip("tidecv")
    for row in pl.read_csv(Path(__file__).parent / "tidecv.tsv", separator="\t").iter_rows(named=True):
        theirs = box_sets.by_tidecv(scene_for_tidecv(row["seed"]))
        assert {name or "AP50": value for name, value in theirs.items()} == pytest.approx(
            {name: value for name, value in row.items() if name != "seed"}, rel=0, abs=1e-12
        )


@pytest.mark.parametrize("seed", range(10))
def test_errors_are_hotcocos_without_crowds(seed: int) -> None:
    pytest.importorskip("hotcoco")
    scene = box_sets.random_scene(seed, images=40, classes=1 + seed % 4, crowds=0.0, ties=seed % 2 == 0)
    theirs = box_sets.by_hotcoco(scene).tide_errors(0.5, 0.1)
    assert costs(scene) == pytest.approx({"": theirs["ap_base"], **theirs["delta_ap"]}, rel=0, abs=1e-9)


def test_the_mean_is_over_classes_with_objects_though_all_were_missed() -> None:
    """tidecv drops such a class from the mean of Miss where nothing was found of it; hotcoco and we
    count it as 0.
    """
    pytest.importorskip("hotcoco")
    objects, found = [[0, 0, 10, 10, 50, 50, 0], [0, 1, 200, 200, 260, 260, 0]], [[0, 0, 10, 10, 50, 50, 0.9]]
    scene = box_sets.scene_of(objects, found, 1)
    theirs = box_sets.by_hotcoco(scene).tide_errors(0.5, 0.1)
    assert costs(scene) == pytest.approx({"": theirs["ap_base"], **theirs["delta_ap"]})
    assert costs(scene)["Miss"] == 0


def test_each_kind_by_hand() -> None:
    """One wrong box of each kind, at known overlaps with one object of class 0 and one of class 1."""
    objects = [[0, 0, 0, 0, 100, 100, 0], [0, 1, 300, 300, 400, 400, 0], [0, 2, 700, 700, 800, 800, 0]]
    found = [
        [0, 0, 0, 0, 100, 100, 0.9],
        [0, 0, 0, 0, 100, 90, 0.8],
        [0, 1, 300, 300, 340, 400, 0.7],
        [0, 1, 0, 0, 100, 100, 0.6],
        [0, 0, 600, 0, 610, 10, 0.5],
        [0, 2, 300, 300, 330, 400, 0.4],
    ]
    seen = tide.typed(box_sets.scene_of(objects, found, 1))
    named = ["match" if kind < 0 else tide.KINDS[kind] for kind in seen.kind]
    assert named == ["match", "Dupe", "Loc", "Cls", "Bkg", "Both"]
    assert seen.used.tolist() == [True, False, False]
    assert seen.usable.tolist() == [False, True, False]


def test_resamples_of_errors_are_those_of_scenes_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco, "RECALLS", np.linspace(0, 1, 101) - 1e-9)
    scene = box_sets.random_scene(3, images=30, classes=2, ties=False)
    counts = box_sets.draws(30, 6)
    _, _, mine = tide.errors(scene, counts)
    for k in range(6):
        _, theirs, _ = tide.errors(box_sets.resampled(scene, counts[:, k]), None)
        for name in theirs:
            np.testing.assert_allclose(mine[name][:, k], theirs[name], rtol=0, atol=2e-6)
