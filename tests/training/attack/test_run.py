"""An attack as a run folder: the table, what reads it and what refuses it, and going on after a setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.training.networks import small

import sorites
from sorites.analysis.comparison.compare import compare
from sorites.core import Model
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation.integrity.check import check
from sorites.evaluation.reopen import plan_of, refuse_attacks
from sorites.evaluation.storage.record import read_record
from sorites.training.attack import attack
from sorites.training.attack.run import worst_case

pytest.importorskip("torch")

Make = Callable[..., Model]
HOW = {"eps": "4/255,.3,2", "steps": 12, "limit": 18, "workers": 2}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    return attack(small(), source=f"folder:{photos}", out=tmp_path_factory.mktemp("attack") / "run", **HOW)


def table(folder: Path) -> pl.DataFrame:
    return sorites.read(folder).collect().sort("shift", "severity", "sample_id")


def test_the_sweep_is_a_dial_of_the_table(done: Path) -> None:
    rows = table(done)
    assert rows.height == 18 * (1 + 2 * 3)
    assert rows["error"].null_count() == rows.height
    seen = rows.select("family", "shift", "severity").unique().sort("shift", "severity").rows()
    dials = [("attack", shift, eps) for shift in ("apgd_ce_l2", "apgd_dlr_l2") for eps in (4 / 255, 0.3, 2.0)]
    assert seen == [*dials, ("clean", "clean", 0.0)]
    right = sorites.accuracy(rows, by=["shift", "severity"]).sort("shift", "severity")["value"].to_list()
    assert right[0] > right[2], "a larger ball breaks more"
    assert right[2] == 0


@pytest.mark.slow
def test_failure_severities_checks_and_the_page_read_it_as_any_run(done: Path, tmp_path: Path) -> None:
    failed = sorites.failure_severity(sorites.read(done))
    assert failed["shift"].to_list() == ["apgd_ce_l2", "apgd_dlr_l2"]
    assert failed["n"].to_list() == [18, 18]
    assert check(str(done)).endswith("small: 126 rows, 0 errors, complete")
    page = sorites.report(done, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "apgd_dlr_l2" in page
    assert "image not available" not in page


def test_what_was_wrong_when_clean_stays_as_it_was(done: Path) -> None:
    rows = table(done)
    wrong = rows.filter(pl.col("shift") == "clean", ~pl.col("correct")).select("sample_id", clean="pred")
    held = rows.filter(pl.col("family") == "attack").join(wrong, on="sample_id")
    assert held.height == wrong.height * 6 > 0
    assert (held["pred"] == held["clean"]).all()


@pytest.mark.slow
def test_images_belong_to_the_model(done: Path, photos: Path, tmp_path: Path) -> None:
    other = attack([small(), small("other", 1)], source=f"folder:{photos}", out=tmp_path / "two", **HOW)
    both = table(other)
    same = both.filter(pl.col("model") == "small").drop("run_id")
    assert same.equals(table(done).drop("run_id")), "another model in the run changes nothing"
    ids = {
        name: set(part.filter(pl.col("family") == "attack")["image_id"])
        for (name,), part in both.group_by("model")
    }
    assert not ids["small"] & ids["other"]
    clean = both.filter(pl.col("shift") == "clean")
    assert clean["image_id"].n_unique() == 18
    with pytest.raises(
        SoritesError,
        match="two is an attack.*severity",
    ):
        compare(other, other, base_model="small", model="other")
    shared = compare(other, other, base_model="small", model="other", shared=True)
    assert shared.dials["dial"].to_list()[0] == "clean"


@pytest.mark.slow
def test_a_stopped_attack_goes_on_to_the_same_table(done: Path, photos: Path, tmp_path: Path) -> None:
    class SettingValue(Exception):
        pass

    seen: list[int] = []

    def bar(what: str, steps: int) -> Callable[[int], None]:
        def tick(n: int) -> None:
            seen.append(n)
            if sum(seen) > 40:
                raise SettingValue

        return tick

    out = tmp_path / "run"
    with pytest.raises(SettingValue):
        attack(small(), source=f"folder:{photos}", out=out, bar=bar, **{**HOW, "workers": 1})
    begun = {path: path.stat().st_mtime_ns for path in (out / "predictions").glob("*.parquet")}
    assert 0 < len(begun) < 6
    attack(small(), source=f"folder:{photos}", out=out, **HOW)
    assert all(path.stat().st_mtime_ns == when for path, when in begun.items())
    assert table(out).equals(table(done))
    opened: list[str] = []
    attack(
        small(), source=f"folder:{photos}", out=out, bar=lambda what, n: opened.append(what) or print, **HOW
    )
    assert opened == []


def test_other_settings_or_weights_in_the_same_folder_are_refused_by_name(done: Path, photos: Path) -> None:
    with pytest.raises(SoritesError, match="attack.steps: 12 there, 13 here"):
        attack(small(), source=f"folder:{photos}", out=done, **{**HOW, "steps": 13})
    with pytest.raises(SoritesError, match="contains another run"):
        attack(small(seed=5), source=f"folder:{photos}", out=done, **HOW)


@pytest.mark.slow
def test_restarts_only_take_away(done: Path, photos: Path, tmp_path: Path) -> None:
    more = attack(small(), source=f"folder:{photos}", out=tmp_path / "run", restarts=3, **HOW)
    keys = ["shift", "severity", "sample_id"]
    both = table(done).join(table(more), on=keys, suffix="_more")
    assert not (both["correct_more"] & ~both["correct"]).any()


def test_the_worst_case_is_right_under_every_attack(done: Path) -> None:
    rows = table(done).filter(pl.col("family") == "attack")
    at = rows.filter(pl.col("severity") == 4 / 255).group_by("sample_id").agg(pl.col("correct").all())
    found = worst_case(sorites.read(done))
    assert found["eps"].to_list() == [4 / 255, 0.3, 2.0]
    assert found["value"][0] == pytest.approx(at["correct"].mean())
    assert found["n"].to_list() == [18, 18, 18]
    twice = pl.concat([rows, rows.with_columns(source=pl.lit("other"), correct=pl.lit(True))])
    assert worst_case(twice)["n"].to_list() == [36, 36, 36], "samples of two sources have the same names"
    assert worst_case(twice)["value"][0] == pytest.approx((1 + at["correct"].mean()) / 2)


def test_images_that_cannot_be_attacked_are_rows_with_errors(photos: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(photos, tmp_path / "photos")
    broken = next((tmp_path / "photos").rglob("p07.png"))
    broken.write_bytes(broken.read_bytes()[:200])
    run = attack(
        small(), source=f"folder:{tmp_path / 'photos'}", out=tmp_path / "run", eps=".1", losses="ce", steps=3
    )
    rows = table(run)
    failed = rows.filter(pl.col("error").is_not_null())
    assert failed["shift"].to_list() == ["apgd_ce_l2", "clean"]
    assert rows.height == 40
    assert "40 rows, 2 errors, complete" in check(str(run))


def test_what_has_no_gradients_is_refused_by_name(photos: Path, tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="attack needs gradients"):
        attack(tiny(), source=f"folder:{photos}", eps=".1", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_source_without_labels_that_the_model_knows_is_refused(photos: Path, tmp_path: Path) -> None:
    ood = small(labels=("n02123045", "n02123159", "n02123394", "n02123597"))
    with pytest.raises(SoritesError, match="of the 20 clean images of"):
        attack(ood, source=f"folder:{photos}", eps=".1", out=tmp_path / "run")


def test_a_model_of_two_classes_is_attacked_without_dlr_unless_that_is_named(
    photos: Path, tmp_path: Path
) -> None:
    two, how = (
        small(labels=("n01440764", "n01443537")),
        {"source": f"folder:{photos}", "eps": ".1", "steps": 2},
    )
    with pytest.raises(SoritesError, match="dlr needs at least 3 classes"):
        attack(two, losses="ce,dlr", out=tmp_path / "run", **how)
    with pytest.warns(Notice, match="dlr needs at least 3 classes"):
        attack(two, out=tmp_path / "run", **how)
    assert read_record(tmp_path / "run").as_json()["attack"]["losses"] == ["ce"]
    assert set(table(tmp_path / "run")["shift"]) == {"clean", "apgd_ce_l2"}


def test_nothing_more_is_made_of_attacked_images(done: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=f"{done} is the run of an attack"):
        plan_of(done)
    with pytest.raises(SoritesError, match="is the run of an attack"):
        sorites.build(done, tmp_path / "data")
    with pytest.raises(SoritesError, match="apgd_ce_l2 is an attack"):
        refuse_attacks("demo", ["jpeg", "apgd_ce_l2"])
    assert json.loads((done / "run.json").read_text())["attack"]["eps"] == [4 / 255, 0.3, 2.0]
