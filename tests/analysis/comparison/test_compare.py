"""Comparison of two runs: numbers against SciPy and the metrics, and refused pairs of runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import sorites
from sorites.analysis.comparison.compare import compare
from sorites.cli import app
from sorites.core import table
from sorites.core.errors import SoritesError
from sorites.core.table import parquet, write_shard
from sorites.evaluation.storage.overlap import NAME, overlap_of
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import read_shard, write_metadata
from sorites.io.digests import read_sealed, stem_of, write_sealed
from sorites.io.listed import write_listed

pytestmark = pytest.mark.slow


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def changed(folder: Path, **keys: object) -> Path:
    """Change keys of ``run.json``."""
    path = folder / "run.json"
    write_sealed({**read_sealed(path, ""), **keys}, path)
    return folder


def test_drops_are_differences_of_accuracies_with_mcnemar_on_clean_images(runs: Path) -> None:
    found = compare(runs / "base", runs / "weak")
    rows = {row["dial"]: row for row in found.dials.to_dicts()}
    assert list(rows) == ["clean", "gaussian_noise", "jpeg", "all"]
    clean = rows["clean"]
    assert clean["p"] == pytest.approx(
        stats.binomtest(clean["lost"], clean["lost"] + clean["gained"], alternative="greater").pvalue,
        abs=1e-8,
    )
    for name in ("base", "weak"):
        own = sorites.accuracy(sorites.read(runs / name), by=["shift"])
        accuracies = dict(own.select("shift", "value").iter_rows())
        side = "base" if name == "base" else "new"
        assert all(rows[dial][side] == pytest.approx(value, abs=1e-8) for dial, value in accuracies.items())
    for row in rows.values():
        assert row["drop"] == pytest.approx(row["base"] - row["new"], abs=1e-8)
        assert row["low"] <= row["drop"] <= row["high"]
    assert rows["jpeg"]["drop"] > 0
    assert rows["jpeg"]["p_family"] >= rows["jpeg"]["p"]


def test_points_are_those_of_the_metrics(runs: Path) -> None:
    found = compare(runs / "base", runs / "weak")
    for measure in ("half_accuracy_severity", "failure_severity"):
        for name, side in (("base", "base"), ("weak", "new")):
            rows = getattr(sorites, measure)(sorites.read(runs / name)).to_dicts()
            for row in rows:
                held = found.points(measure, row["shift"])
                assert getattr(held, side) == pytest.approx(
                    held.top if row["value"] is None else row["value"], abs=1e-8
                )


def test_the_order_of_sides_only_changes_the_sign(runs: Path) -> None:
    there, back = compare(runs / "base", runs / "weak"), compare(runs / "weak", runs / "base")
    assert there.dials["drop"].to_numpy() == pytest.approx(-back.dials["drop"].to_numpy())
    assert there.worse.p_family == pytest.approx(back.better.p_family, abs=1e-12)
    assert there.dials["lost"].to_list() == back.dials["gained"].to_list()


def test_two_models_of_one_run_are_compared_by_name(runs: Path) -> None:
    apart = compare(runs / "base", runs / "weak")
    within = compare(runs / "both", runs / "both", base_model="base", model="weak")
    assert within.dials.equals(apart.dials)
    with pytest.raises(SoritesError, match="base_model=NAME"):
        compare(runs / "both", runs / "base")
    with pytest.raises(SoritesError, match="'wek'. Did you mean weak"):
        compare(runs / "base", runs / "both", model="wek")
    with pytest.raises(SoritesError, match="compared with itself"):
        compare(runs / "base", runs / "base")


def test_a_smaller_run_is_refused_unless_shared(runs: Path) -> None:
    with pytest.raises(SoritesError, match="shared=True.* 88"):
        compare(runs / "few", runs / "weak")
    found = compare(runs / "few", runs / "weak", shared=True)
    assert set(found.dials["n"]) == {8}
    assert "left out" in found.notes[0]


def test_an_unfinished_run_is_refused(runs: Path, tmp_path: Path) -> None:
    cut = copied(runs / "weak", tmp_path / "cut")
    next((cut / "predictions").glob("jpeg*")).unlink()
    with pytest.raises(SoritesError, match="is not finished"):
        compare(runs / "base", cut)


def test_other_images_and_other_versions_are_refused(runs: Path, tmp_path: Path) -> None:
    other = copied(runs / "weak", tmp_path / "other")
    path = other / "manifest.parquet"
    rows = pl.read_parquet(path).with_columns(content=pl.lit("f" * 32))
    write_listed(other / "run.json", path.name, parquet(rows))
    with pytest.raises(SoritesError, match="20 of the 20 images"):
        compare(runs / "base", other)
    info = json.loads((runs / "weak" / "run.json").read_text())
    older = changed(copied(runs / "weak", tmp_path / "older"), shifts={**info["shifts"], "jpeg": 0})
    with pytest.raises(SoritesError, match=r"jpeg \(1 and 0\)"):
        compare(runs / "base", older)
    dials = [
        {**dial, "options": {"kernels": "a/own.npy"}} if dial["name"] == "jpeg" else dial
        for dial in info["suite"]["shifts"]
    ]
    own = changed(
        copied(runs / "weak", tmp_path / "own"),
        shifts={**info["shifts"], "jpeg": 0},
        suite={**info["suite"], "shifts": dials},
    )
    with pytest.raises(
        SoritesError, match=r"base has jpeg \(defaults\) and .*own has jpeg \(kernels=own.npy\)"
    ):
        compare(runs / "base", own)
    pillow = changed(
        copied(runs / "weak", tmp_path / "pillow"), versions={**info["versions"], "pillow": "1.0"}
    )
    with pytest.raises(SoritesError, match="pillow .*other_versions=True"):
        compare(runs / "base", pillow)
    assert "pillow" in compare(runs / "base", pillow, other_versions=True).notes[0]
    seeded = changed(copied(runs / "weak", tmp_path / "seeded"), suite={**info["suite"], "seed": 3})
    with pytest.raises(SoritesError, match=r"seed \(0 and 3\)"):
        compare(runs / "base", seeded)


def with_errors(folder: Path, shift: str, samples: int) -> Path:
    """Turn the first samples of a shift into errors."""
    for shard in sorted((folder / "predictions").glob(f"{shift}*")):
        rows = read_shard(shard)
        gone = pl.col("sample_id").is_in(sorted(rows["sample_id"].unique())[:samples])
        empty = [
            pl.when(gone).then(None).otherwise(pl.col(name)).alias(name)
            for name in ("correct", "pred", "conf")
        ]
        errors = pl.when(gone).then(pl.lit("cannot be read")).otherwise(pl.col("error")).alias("error")
        shard.unlink()
        write_shard(rows.with_columns(*empty, errors), folder, stem_of(shard.name) or "")
    return folder


def test_images_that_fail_for_one_model_only_are_refused(runs: Path, tmp_path: Path) -> None:
    holed = with_errors(copied(runs / "weak", tmp_path / "holed"), "jpeg", 1)
    with pytest.raises(SoritesError, match="weak of .*cannot be read"):
        compare(runs / "base", holed)
    found = compare(runs / "base", holed, shared=True)
    lacks = 20 - found.dials.filter(pl.col("dial") == "jpeg")["n"].item()
    assert lacks > 0
    assert found.notes[0].startswith(f"{5 * lacks} images (jpeg) failed")
    none = with_errors(copied(runs / "weak", tmp_path / "none"), "jpeg", 20)
    found = compare(runs / "base", none, shared=True)
    assert found.places == ("clean", "gaussian_noise")
    assert found.notes[1] == "Not compared, because no image was evaluated for both models: jpeg."


def test_images_that_fail_for_both_models_are_left_out(runs: Path, tmp_path: Path) -> None:
    holed = [with_errors(copied(runs / name, tmp_path / name), "jpeg", 1) for name in ("base", "weak")]
    found = compare(*holed)
    assert found.notes[0].endswith("images (jpeg) failed for both models; they are left out.")
    counts = dict(found.dials.select("dial", "n").iter_rows())
    assert counts["jpeg"] < counts["gaussian_noise"] == 20


def test_differently_filtered_runs_are_refused(runs: Path, tmp_path: Path) -> None:
    base = copied(runs / "base", tmp_path / "base")
    rows = (
        table.read(base)
        .filter(pl.col("shift") == "jpeg")
        .select("image_id")
        .unique()
        .sort("image_id")
        .collect()
    )
    table.write_facts(base, "out_of_class", rows.with_columns(valid=pl.int_range(pl.len()) > 9))
    with pytest.raises(SoritesError, match=r"10 images \(jpeg\) .*/base\."):
        compare(base, runs / "weak")
    assert "10 images (jpeg) were filtered out" in compare(base, runs / "weak", shared=True).notes[0]


def test_no_order_of_files_changes_a_number(runs: Path) -> None:
    first, again = compare(runs / "base", runs / "weak"), compare(runs / "base", runs / "weak")
    assert first.dials.equals(again.dials)
    assert np.array_equal(first.matrix.base, again.matrix.base)


def test_files_name_options_as_they_are_typed(runs: Path, tmp_path: Path) -> None:
    """The notes of a comparison refer to options; files must not hold the references themselves."""
    seen = copied(runs / "weak", tmp_path / "seen")
    (model,) = read_record(seen).models
    write_metadata(seen, NAME, {model: [3, 8]})
    assert overlap_of(seen) == {model: (3, 8)}
    out = {kind: tmp_path / f"c.{kind}" for kind in ("html", "md", "xml", "json")}
    paths = [str(out[kind]) for kind in out]
    flags = ["--out", paths[0], "--markdown", paths[1], "--junit", paths[2], "--json", paths[3]]
    assert CliRunner().invoke(app, ["compare", str(runs / "base"), str(seen), *flags]).exit_code == 0
    for kind, path in out.items():
        text = path.read_text(encoding="utf-8")
        assert "\ue000" not in text
        assert "\\ue000" not in text
        assert kind == "xml" or "--unseen-by" in text
