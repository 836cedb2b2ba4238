from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.conftest import one_shard_per_model


def test_a_metric_is_printed_in_every_format(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    code, out, err = command("metrics", "r", "accuracy", "--by", "model, shift", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err, [row["shift"] for row in rows]) == (0, "", ["clean", "jpeg"])
    assert [int(row["n"]) for row in rows] == [3, 15]
    code, out, _ = command("metrics", "r", "corruption_error", "--format", "json")
    assert (code, json.loads(out)[0]["model"]) == (0, "python:means:logits")
    code, out, _ = command("metrics", "r", "accuracy")
    assert code == 0
    assert out.split("\n")[1].split() == [
        "model",
        "shift",
        "severity",
        "value",
        "n",
        "low",
        "high",
        "missing",
    ]


@pytest.mark.slow
def test_an_empty_answer_says_what_the_metric_answers(command: Command) -> None:
    command("run", "s.toml", "--shift", "jpeg", "--scorer", "energy", "--out", "r")
    code, out, err = command("metrics", "r", "lens_field", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err.startswith("no rows. lens_field: ")
    assert err.endswith("given these options.\n")
    _, out, err = command("metrics", "r", "ood", "--format", "csv")
    assert len(out.splitlines()) == 6
    assert err.startswith("every value is null, n up to 18. ood: AUROC")
    assert "add --framework model-specific" in err
    assert (
        "None of these images is OOD"
        not in command("metrics", "r", "ood", "--framework", "model-specific")[2]
    )
    assert command("metrics", "r", "accuracy")[2] == ""


def test_mistakes_about_a_run(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    for words, message in [
        (["metrics", "r", "accuracy", "--by", "modle"], "no column named 'modle'. Did you mean model"),
        (
            ["metrics", "r", "lens_field", "--by", "foo"],
            "no column named 'foo'. The columns are run_id, source, split, sample_id,",
        ),
        (["metrics", "r", "accuracy", "--format", "xml"], "--format must be table, csv"),
        (["metrics", "r", "accuracy", "--reference", "x"], "accuracy has no reference model"),
        (["metrics", "r", "corruption_error", "--reference", "x"], "no model named 'x'"),
        (
            ["run", "s.toml", "--seed", "1", "--out", "r"],
            "r contains another run (suite.seed: 0 there, 1 here)",
        ),
    ]:
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert message in err


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_of_lists_can_be_printed(command: Command, format: str) -> None:
    command("run", "s.toml", "--out", "r")
    code, out, err = command("metrics", "r", "accuracy", "--by", "accept", "--format", format)
    assert code == 0, err
    assert "[" in out


def setting(folder: Path) -> None:
    """Take the shards of a shift away, as if the run had been stopped before it."""
    one_shard_per_model(folder)
    for shard in (folder / "predictions").glob("contrast*--two*"):
        shard.unlink()


@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_an_unfinished_run_says_so_first(command: Command, run: Path, tmp_path: Path, format: str) -> None:
    shutil.copytree(run, tmp_path / "r")
    setting(tmp_path / "r")
    words = ["metrics", tmp_path / "r", "accuracy", "--by", "model,shift", "--format", format]
    code, out, err = command(*words)
    assert code == 0, err
    assert "contrast" not in out.replace("contrast (0 of 8 samples done)", "").replace("shifts contrast", "")
    first = (out if format == "table" else err).splitlines()[0]
    assert first.startswith(
        f"note: {tmp_path / 'r'} is not finished: 5 of 6 slices are evaluated. two lacks contrast (0 of 8"
    )
    code, out, err = command(*words, "--partial")
    assert "contrast" in out
    assert "Everything available is used" in (out if format == "table" else err)


@pytest.mark.slow
def test_several_runs_are_asked_together(command: Command) -> None:
    for name, more in (
        ("a", ["--limit", "3"]),
        ("b", ["--limit", "2", "--shift", "jpeg", "--shift", "contrast"]),
    ):
        assert command("run", "s.toml", "--out", name, *more)[0] == 0
    code, out, err = command("metrics", "a", "b", "accuracy", "--by", "shift")
    assert code == 0, err
    assert out.startswith("note: These runs are compared on what they share: 2 samples.")
    assert "a: 1 of its 3 samples" in out


def test_a_condition_chooses_rows_and_classes_have_names(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    code, out, _ = command(
        "metrics", "r", "accuracy", "--where", "shift = jpeg and severity >= 85", "--format", "csv"
    )
    assert code == 0
    assert [row["severity"] for row in csv.DictReader(io.StringIO(out))] == ["85.0", "90.0", "93.0"]
    code, out, _ = command("metrics", "r", "accuracy", "--by", "label", "--format", "csv")
    first, *_ = csv.DictReader(io.StringIO(out))
    assert (code, first["label"], first["label_name"]) == (0, "0", "tench")
    code, _, err = command("metrics", "r", "accuracy", "--where", "shift = jpg")
    assert (code, "no shift here named 'jpg'. Did you mean jpeg? There are clean, jpeg." in err) == (2, True)
    code, _, err = command("metrics", "r", "accuracy_drop", "--where", "shift = jpeg")
    assert '--where "(shift = jpeg) or shift = clean"' in err


def test_the_measure_that_is_averaged_is_named(command: Command) -> None:
    command("run", "s.toml", "--out", "r")
    command("similarity", "r", "--measure", "psnr")
    code, _, err = command("metrics", "r", "mean_degree", "--option", "measure=psnr")
    assert (code, "note: values of the measure psnr: higher" in err) == (0, True)
    code, _, err = command("metrics", "r", "mean_degree")
    said = "no measure in this table named 'ssim'. It has psnr: name one of these as the option measure"
    assert (code, said in err) == (2, True)


@pytest.mark.slow
def test_a_run_says_what_its_models_see(command: Command, home: Path) -> None:
    code, _, err = command("run", "s.toml", "--model", "lite0", "--level", "1", "--out", "r")
    assert code == 0, err
    assert (
        "lite0 sees 224 x 224 px: the frame scaled (bicubic); mean 0.498 0.498 0.498, std 0.502 0.502 0.502"
        in err
    )
    assert json.loads((home / "r/run.json").read_text())["inputs"]["lite0"]["crop_pct"] == 0.875
    _, _, err = command("run", "s.toml", "--level", "1", "--out", "other")
    assert "python:means:logits sees images as they are" in err
