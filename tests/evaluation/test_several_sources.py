"""Several sources in one run: names, ids, roles, groups, frames and limits; and what OOD
folders may look like.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.conftest import scene

import sorites
from sorites import metrics
from sorites.core import Generated, Model, Sample, Source
from sorites.core.errors import SoritesError
from sorites.evaluation import plan
from sorites.evaluation.integrity.check import check_run
from sorites.evaluation.reopen import plan_of
from sorites.suites.suite import parse

SUITE = {
    "name": "s",
    "shifts": [{"name": "jpeg", "levels": [1, 5]}],
    "scorers": ["msp", "energy"],
    "frame": {"resize": 56},
}


@pytest.fixture
def textures(tmp_path: Path) -> Path:
    """Loose images without any label, one of them with the name of an in-distribution image."""
    root = tmp_path / "textures"
    root.mkdir()
    for i in range(3):
        Pillow.fromarray(scene(100 + i)).save(root / f"p{i:02d}.png")
    return root


@pytest.fixture
def ninco(tmp_path: Path) -> Path:
    """Class folders that no label space has, and one that ours has."""
    for folder, seed in (("amphiuma slug", 200), ("n01440764", 201)):
        (tmp_path / "ninco" / folder).mkdir(parents=True)
        Pillow.fromarray(scene(seed)).save(tmp_path / "ninco" / folder / "p00.png")
    return tmp_path / "ninco"


@pytest.fixture
def together(
    photos: Path, textures: Path, ninco: Path, tiny: Callable[..., Model], tmp_path: Path
) -> pl.DataFrame:
    ood = {"far:textures": f"folder:{textures}", "near:ninco": f"folder:{ninco}"}
    suite = parse(SUITE, "test")
    return sorites.run(
        suite, source=f"folder:{photos}", ood=ood, models=[tiny()], out=tmp_path / "run"
    ).collect()


@pytest.mark.slow
def test_the_first_source_keeps_its_rows_and_ids(
    together: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    alone = sorites.run(
        parse(SUITE, "test"), source=f"folder:{photos}", models=[tiny()], out=tmp_path / "alone"
    ).collect()
    first = together.filter(pl.col("source") == "folder")
    order = ["image_id", "output", "scorer"]
    assert first.drop("run_id").sort(order).equals(alone.drop("run_id").sort(order))


def test_ood_images_are_named_unknown_and_grouped(together: pl.DataFrame) -> None:
    rows = together.filter(pl.col("source") != "folder", pl.col("output") == "label")
    assert dict(rows.group_by("source").len().iter_rows()) == {"textures": 3 * 3, "ninco": 2 * 3}
    assert set(rows["known"]) == {False}
    assert set(rows["label"]) == set(rows["correct"]) == {None}, (
        "a class that happens to have our name is OOD all the same"
    )
    assert all(
        name.startswith(f"{source}/") for name, source in rows.select("sample_id", "source").iter_rows()
    )
    groups = {source: attrs[-1]["value"] for source, attrs in rows.select("source", "attrs").iter_rows()}
    assert groups == {"textures": "far", "ninco": "near"}
    assert together["image_id"].n_unique() == (20 + 3 + 2) * 3


def test_pools_follow_from_the_sources(together: pl.DataFrame) -> None:
    """AUROC of each group against the in-distribution images of the same shift and severity, by pairs
    counted here.
    """
    found = metrics.auroc(together, by=["scorer", "shift", "severity", "group"])
    row = found.filter(scorer="energy", shift="jpeg", group="far").sort("severity").row(-1, named=True)
    rows = together.filter(
        pl.col("scorer") == "energy", pl.col("shift") == "jpeg", pl.col("severity") == row["severity"]
    )
    ood = rows.filter(pl.col("source") == "textures")["score"].to_numpy()
    in_distribution = rows.filter(pl.col("source") == "folder")["score"].to_numpy()
    won = (ood[:, None] > in_distribution).mean() + (ood[:, None] == in_distribution).mean() / 2
    assert (row["id"], row["ood"]) == (20, 3)
    assert row["value"] == pytest.approx(won)


@pytest.mark.slow
def test_a_run_of_several_sources_is_whole_and_opens_again(
    together: pl.DataFrame, textures: Path, tmp_path: Path
) -> None:
    assert check_run(tmp_path / "run").endswith("complete")
    assert {sample.source for sample in plan_of(tmp_path / "run").groups["clean"]} == {
        "",
        "textures",
        "ninco",
    }
    before = {
        plan_of(tmp_path / "run").image_id(s, "clean", s.setting)
        for s in plan_of(tmp_path / "run").groups["clean"]
    }
    textures.rename(tmp_path / "moved")
    gone = plan_of(tmp_path / "run")
    assert {gone.image_id(s, "clean", s.setting) for s in gone.groups["clean"]} == before, "from the manifest"
    with pytest.raises(SoritesError, match="not available"):
        gone.groups["clean"][-1].load()


def test_toml_names_all_sources(photos: Path, textures: Path) -> None:
    suite = parse(
        {
            "name": "s",
            "frame": {"resize": 56},
            "sources": [
                {"spec": f"folder:{photos}", "name": "es", "limit": 4},
                {
                    "spec": f"folder:{textures}",
                    "group": "far",
                    "limit": 2,
                    "frame": {"resize": 40, "crop": 32},
                },
            ],
        },
        "test",
    )
    assert (suite.source_name, suite.limit, suite.sources[0].name) == ("es", 4, "textures")
    made = plan.make(suite)
    clean = made.groups["clean"]
    assert [made.source_of(sample) for sample in clean] == ["es"] * 4 + ["textures"] * 2
    assert [made.framed(sample.id).shape[0] for sample in clean[-2:]] == [32, 32]
    assert parse(suite.model_dump(), "again") == suite


def test_two_in_distribution_sources_share_the_labels(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    table = sorites.run(
        parse({"name": "s"}, "test"),
        source=f"folder:{photos}",
        id_sources={"focus": f"folder:{photos}"},
        models=[tiny()],
        out=tmp_path / "run",
    ).collect()
    assert dict(metrics.accuracy(table, by=["source"]).select("source", "n").iter_rows()) == {
        "folder": 20,
        "focus": 20,
    }
    assert table["image_id"].n_unique() == 40


def test_captured_shifts_stay_with_the_source_that_has_them(tiny: Callable[..., Model]) -> None:
    image = scene(1)
    first = Source(
        "es",
        [Sample("a", Generated(lambda: image), 0), Sample("a", Generated(lambda: image), 0, shift="mist")],
    )
    ood = Source("odd", [Sample("b", Generated(lambda: image), None)])
    made = plan.make(
        parse({"name": "s", "shifts": ["mist"], "sources": [{"spec": "odd"}], "source": "es"}, "t"),
        first,
        further={"odd": ood},
    )
    assert [sample.id for sample in made.groups["mist"]] == ["a"]
    assert [sample.id for sample in made.groups["clean"]] == ["a", "odd/b"]


@pytest.mark.parametrize(
    ("sources", "complaint"),
    [
        ([{"spec": "folder:a", "name": "x"}, {"spec": "folder:b", "name": "x"}], "source 'x'"),
        ([{"spec": "folder:a", "role": "ood"}], "first source must be"),
        ([{"spec": "folder:a"}, {"spec": "folder:b", "rolle": "ood"}], "Did you mean role"),
    ],
)
def test_mistakes_are_named(sources: list[dict[str, str]], complaint: str) -> None:
    with pytest.raises(SoritesError, match=complaint):
        parse({"name": "s", "sources": sources}, "test")


def test_a_frame_for_one_captured_shift(tmp_path: Path) -> None:
    image = np.zeros((90, 120, 3), np.uint8)
    source = Source(
        "is",
        [
            Sample("a", Generated(lambda: image), 0),
            Sample("b", Generated(lambda: image), 0, shift="imagenet21k"),
        ],
    )
    suite = parse(
        {
            "name": "s",
            "frame": {"resize": 64, "crop": 56},
            "frames": {"imagenet21k": {"resize": 56, "crop": 56}},
        },
        "t",
    )
    made = plan.make(suite, source)
    assert plan.frame_of(suite, made.groups["imagenet21k"][0]).resize == 56  # type: ignore[union-attr]
    assert plan.frame_of(suite, made.groups["clean"][0]).resize == 64  # type: ignore[union-attr]
