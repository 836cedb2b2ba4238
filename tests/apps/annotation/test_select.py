"""Images worth a look, counted by hand beside; a study's sample and what people found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.apps.annotation.worlds import answered

import sorites
from sorites.apps.annotation.images import from_run
from sorites.apps.annotation.select import draw_study, select, study_shares
from sorites.core import CLEAN, Model
from sorites.core.errors import SoritesError
from sorites.core.table import write_facts
from sorites.io.listed import delete_listed
from sorites.suites.suite import parse


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models under two shifts, with a made-up likeness to the texts of classes."""
    out = tmp_path_factory.mktemp("select") / "run"
    suite = parse(
        {"name": "s", "shifts": ["contrast", "brightness"], "reference": "one", "frame": {"resize": 40}},
        "test",
    )
    sorites.run(suite, source=f"folder:{photos}", models=[tiny("one"), tiny("two")], out=out, limit=12)
    ids = sorites.read(out).select("image_id").unique().collect()["image_id"].sort()
    likeness = [[{"measure": "class_text", "value": 20.0 + 8 * (at % 4)}] for at in range(len(ids))]
    write_facts(out, "likeness", pl.DataFrame({"image_id": ids, "degrees": likeness}))
    return out


def by_hand(run: Path, above: float | None) -> dict[str, tuple[bool, bool]]:
    """Whether each image is in a whole trajectory, and whether it is easy, by plain loops over the table."""
    facts: dict[str, dict[str, object]] = {}
    for row in sorites.read(run).collect().iter_rows(named=True):
        one = facts.setdefault(row["image_id"], {"sample": row["sample_id"], "shift": row["shift"]})
        one[row["model"]] = row["correct"]
        one["near"] = above is None or any(
            d["measure"] == "class_text" and d["value"] > above for d in row["degrees"] or []
        )
    good = {one["sample"]: one["one"] and one["near"] for one in facts.values() if one["shift"] == CLEAN}
    return {
        id_: (
            bool(good[one["sample"]]),
            bool(one["shift"] == CLEAN or (one["one"] and one["two"] and one["near"])),
        )
        for id_, one in facts.items()
    }


@pytest.mark.parametrize("above", [24.0, None])
def test_stages(run: Path, above: float | None) -> None:
    """Every image reaches the stage that plain loops say, and the table of stages adds up."""
    found = select(run, "one", ["two"], above)
    assert {row["image_id"]: (row["whole"], row["easy"]) for row in found.images.to_dicts()} == by_hand(
        run, above
    )
    table = found.statistics()
    assert (table["ii"] == table["iii"] + table["for_people"]).all()
    assert table["for_people"].sum() == found.hard.height
    assert 0 < found.hard.height < table["i"].sum()


def test_limit(run: Path) -> None:
    """A limit takes equal parts of every shift and severity, the same ones each time, and a larger
    one contains a smaller.
    """
    some, more = (select(run, above=None, limit=limit).hard for limit in (8, 14))
    sizes = some.group_by("shift", "severity").len()["len"]
    assert some.height == 8
    assert sizes.max() - sizes.min() <= 1  # type: ignore[operator]
    assert set(some["image_id"]) <= set(more["image_id"])
    assert some.equals(select(run, above=None, limit=8).hard)


def test_answers(run: Path, tmp_path: Path) -> None:
    """With people's answers, what they found in class is added to what was easy (stage iv)."""
    found = select(run, "one", ["two"], None)
    entries = from_run(run, set(found.hard["image_id"]))
    path = answered(
        tmp_path / "l.sqlite",
        "in_class",
        entries,
        lambda row, who: {"class": ("class", "not class", "partly")[row["id"] % 3]},
    )
    table = found.statistics(path)
    seen = sum(entry % 3 == 0 for entry in range(1, len(entries) + 1))
    assert (table["iv"] - table["iii"]).sum() == seen
    rows = study_shares(path)
    whole = rows.filter(pl.col("severity").is_null() & pl.col("shift").is_null()).row(0, named=True)
    out = sum(entry % 3 == 1 for entry in range(1, len(entries) + 1))
    assert whole["share"] == pytest.approx(out / len(entries))
    assert whole["n"] == len(entries)
    assert whole["low"] < whole["share"] < whole["high"]
    assert rows.filter(pl.col("shift").is_not_null())["n"].sum() == len(entries)


def test_visible(run: Path, tmp_path: Path) -> None:
    """Table 9: the share of images by severity in which the shift is clearly seen."""
    entries = from_run(run)[:20]
    path = answered(
        tmp_path / "v.sqlite",
        "visible",
        entries,
        lambda row, who: {"visible": "clear" if (row["severity"] or 0) > 0.3 else "unclear"},
    )
    rows = study_shares(path).filter(pl.col("severity").is_not_null() & pl.col("shift").is_null())
    assert all(row["share"] == (1.0 if row["severity"] > 0.3 else 0.0) for row in rows.to_dicts())


def test_published_margin() -> None:
    """3 of 300 is 1 % with a one-sigma margin of 0.6 % by the plain formula (the paper prints 0.5 %)."""
    from sorites.metrics.intervals import wilson_interval

    frame = pl.DataFrame({"p": [0.01], "n": [300]}).with_columns(**wilson_interval(pl.col("p"), pl.col("n")))
    assert frame["low"][0] == pytest.approx(0.0034, abs=2e-4)
    assert frame["high"][0] == pytest.approx(0.0290, abs=2e-4)


def test_draw(run: Path) -> None:
    """A study's sample is random and the same each time; images that a filter set aside are not in it."""
    drawn = draw_study(run, 15)
    assert drawn.height == 15
    assert drawn.equals(draw_study(run, 15))
    assert not drawn["image_id"].equals(draw_study(run, 15, seed=1)["image_id"])
    assert CLEAN not in set(drawn["shift"])
    gone = drawn["image_id"][0]
    write_facts(run, "cut", pl.DataFrame({"image_id": [gone], "valid": [False]}))
    try:
        assert gone not in set(draw_study(run, 10_000)["image_id"])
    finally:
        delete_listed(run / "run.json", "facts/cut.parquet")


def test_mistakes(run: Path, photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    """Unknown models, a run of one model and a run without a likeness are refused with what to do."""
    with pytest.raises(SoritesError, match="Did you mean one"):
        select(run, "onee")
    suite = parse({"name": "s", "shifts": ["contrast"], "reference": "one"}, "test")
    sorites.run(suite, source=f"folder:{photos}", models=[tiny("one")], out=tmp_path / "alone", limit=2)
    with pytest.raises(SoritesError, match="model=NAME"):
        select(tmp_path / "alone")
    sorites.run(
        suite, source=f"folder:{photos}", models=[tiny("one"), tiny("two")], out=tmp_path / "bare", limit=2
    )
    with pytest.raises(SoritesError, match="above"):
        select(tmp_path / "bare")
    for wrong in (0, -3):
        with pytest.raises(SoritesError, match="at least 1"):
            draw_study(run, wrong)
        with pytest.raises(SoritesError, match="at least 1"):
            select(run, above=None, limit=wrong)
