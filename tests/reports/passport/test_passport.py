"""A passport from end to end: it agrees with the metrics, and interruptions change nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from huggingface_hub import ModelCard
from tests.schemas import problems

import sorites
from sorites import core
from sorites.analysis.comparison.compare import compare
from sorites.analysis.passport.document import Passport, read_passport
from sorites.core.errors import Damaged, SoritesError
from sorites.core.table import read
from sorites.io.digests import read_sealed, write_sealed
from sorites.reports.components.severities import title
from sorites.reports.passport.page import top
from sorites.reports.passport.passport import passport

pytestmark = pytest.mark.slow

SPEC = "python:guessing:logits"


def made(out: str, **more: object) -> Passport:
    return passport(SPEC, battery="mine.toml", out=out, **more)  # type: ignore[arg-type]


def test_every_number_is_a_metrics_answer(home: Path) -> None:
    found = made("p")
    assert found.battery.name == "mine"
    assert found.battery.version == 3
    assert [dial.shift for dial in found.dials] == ["gaussian_noise", "jpeg", "contrast"]
    table = read(home / "p/runs/noise")
    clean = sorites.accuracy(table.filter(pl.col("shift") == "clean"), by=["model"]).row(0, named=True)
    assert (found.clean.value, found.clean.low, found.clean.n) == pytest.approx(
        (clean["value"], clean["low"], clean["n"])
    )
    halves = {row["shift"]: row for row in sorites.half_accuracy_severity(table).to_dicts()}
    for dial in found.dials[:2]:
        assert (dial.half.value, dial.half.low, dial.half.high) == pytest.approx(
            tuple(halves[dial.shift][key] for key in ("value", "low", "high")), nan_ok=True
        )
        assert len(dial.accuracy) == 5
    assert found.knows is not None
    assert [kept.coverage for kept in found.knows.risk] == [0.5, 0.8, 1.0]
    assert [run.samples for run in found.runs] == [20, 20]
    assert read_passport(home / "p") == found


def test_the_model_is_loaded_once_for_all_parts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = list[str](), core.model

    def counted(spec: str) -> core.Model:
        loaded.append(spec)
        return load(spec)

    monkeypatch.setattr(core, "model", counted)
    assert len(made("p").runs) == 2
    assert loaded == [SPEC]


def test_files_agree_and_are_escaped(home: Path) -> None:
    found = made("p")
    badge = ElementTree.fromstring((home / "p/badge.svg").read_text())
    assert badge.tag.endswith("svg")
    assert "sorites mine 3" in (home / "p/badge.svg").read_text()
    assert problems(home / "p/passport.json", "passport") == []
    record = (home / "p/robustness_record.md").read_text()
    assert "not a certificate" in record
    assert "not its wording" in record
    assert all(f"| {title(dial.shift)} |" in record for dial in found.dials)
    card = (home / "p/model_card.md").read_text()
    assert found.hash[:16] in card
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(found.dials)
    page = (home / "p/passport.html").read_text()
    assert "JPEG quality" in page
    assert found.hash in page
    samples = len({run.digest for run in found.runs}) * 20
    assert f"Measured on {samples} samples" in page
    assert f"n\u00a0=\u00a0{found.clean.n}\u00a0samples" in page
    assert "preprocessing is assumed" not in page
    assert "mean, std" in top(found, {"assumed": ["mean", "std"]})
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    # The reader of the Hugging Face Hub finds the results in the head of the card.
    results = ModelCard.load(home / "p/model_card.md").data.eval_results
    values = {(result.dataset_split, result.metric_type): result.metric_value for result in results}
    assert values == {("clean", "accuracy"): found.clean.value, ("shifted", "accuracy"): found.shifted.value}
    assert {result.task_type for result in results} == {"image-classification"}


def test_the_same_again_does_nothing_and_another_folder_says_the_same(home: Path) -> None:
    first = made("p")
    before = {path: path.stat().st_mtime_ns for path in (home / "p/runs").rglob("predictions/*.parquet")}
    assert made("p") == first
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert made("q") == first
    assert (home / "p/passport.json").read_bytes() == (home / "q/passport.json").read_bytes()


def test_deleted_parts_are_recomputed_identically(home: Path) -> None:
    made("p")
    first = (home / "p/passport.json").read_bytes()
    next((home / "p/runs/light/predictions").iterdir()).unlink()
    (home / "p/passport.json").unlink()
    made("p")
    assert (home / "p/passport.json").read_bytes() == first


@pytest.mark.slow
def test_killed_and_gone_on_with_gives_the_same_json(home: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from sorites.cli import main; main()",
        "passport",
        SPEC,
        "--battery",
        "mine.toml",
        "--out",
    ]
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [*command, "whole"], check=True, env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    started = subprocess.Popen(
        [*command, "cut"], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while (
        not list(home.glob("cut/runs/*/predictions/*.parquet"))
        and started.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait(60)
    assert not (home / "cut/passport.json").exists()
    subprocess.run([*command, "cut"], check=True, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert (home / "cut/passport.json").read_bytes() == (home / "whole/passport.json").read_bytes()


@pytest.mark.slow
def test_passports_are_compared_part_by_part(home: Path) -> None:
    made("p")
    passport("other=python:guessing:logits", battery="mine.toml", out="q")
    found = compare("p", "q")
    assert found.dials["dial"].to_list() == ["clean", "contrast", "gaussian_noise", "jpeg", "all"]
    assert found.dials["drop"].to_list() == [0.0] * 5
    made("few", limit=6)
    with pytest.raises(SoritesError, match="shared=True"):
        compare("p", "few")


def test_changed_passports_and_nan_are_refused(home: Path) -> None:
    made("p")
    path = home / "p/passport.json"
    held = read_sealed(path, "")
    changed = [
        ({**held, "clean": {**held["clean"], "value": 0.99}}, "its hash differs"),
        ({**held, "clean": {**held["clean"], "value": float("nan")}}, r"clean\.value: .*finite"),
        ({**held, "schema_version": 1}, "schema_version"),
    ]
    for content, said in changed:
        write_sealed(content, path)
        with pytest.raises(Damaged, match=said):
            compare("p", "p")
    for text in ("{", json.dumps(held)):
        path.write_text(text)
        with pytest.raises(Damaged, match="does not end with a digest"):
            read_passport(home / "p")


def test_two_at_once_and_another_model_in_the_same_folder_are_refused(home: Path) -> None:
    made("p")
    with pytest.raises(SoritesError, match="another run|models"):
        passport("other=python:guessing:logits", battery="mine.toml", out="p")
