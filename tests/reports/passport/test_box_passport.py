"""The passport of a detector: numbers against a loop over objects, resuming, verification, and its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.schemas import problems

from sorites import core
from sorites.analysis.passport.document import BoxPassport, read_passport
from sorites.apps.check import check_passport
from sorites.core.boxes import iou
from sorites.core.errors import SoritesError
from sorites.core.table import SCHEMA, read
from sorites.metrics.detection.kept import half_objects_severities, kept_shares
from sorites.reports.passport.passport import passport
from sorites.reports.verify import verify

SPEC = "python:finding:boxes"
SUITE = """
source = "yolo:data"
labels = ["red", "blue"]
shifts = [{ name = "contrast", levels = [1, 3, 5] }, { name = "gaussian_noise", levels = [1, 5] }]
"""
BATTERY = """
version = 1
minutes = 1
limit = 12
detectors = true
[[parts]]
name = "light"
suite = "light.toml"
shifts = ["contrast"]
[[parts]]
name = "noise"
suite = "light.toml"
shifts = ["gaussian_noise"]
"""
MODEL = """
import numpy as np
def boxes(images):
    found = []
    for image in images:
        pixels = image.astype(np.float32)
        rows = []
        for label, more, less in ((0, 0, 2), (1, 2, 0)):
            mask = pixels[..., more] - pixels[..., less] > 60
            if mask.sum() < 9:
                continue
            ys, xs = np.nonzero(mask)
            sides = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            share = mask.sum() / ((sides[2] - sides[0]) * (sides[3] - sides[1]))
            rows.append([*sides, 0.2 + 0.8 * share, label])
            if label and int(pixels.sum()) % 2:
                rows.append([0, 0, 20, 20, 0.3, 0])
        found.append(np.array(rows).reshape(-1, 6))
    return found
boxes.sorites = {"labels": ["red", "blue"]}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a battery, a detector of coloured squares, and twelve images of one or two of them."""
    rng = np.random.default_rng(0)
    for folder in ("data/images", "data/labels"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/data.yaml").write_text("path: .\nval: images\nnames:\n  0: red\n  1: blue\n")
    for number in range(12):
        image = np.full((64, 96, 3), 120, np.uint8)
        lines = []
        for label in range(2 if number % 3 else 1):
            side, strength = int(rng.integers(14, 24)), int(rng.integers(80, 120))
            x, y = 4 + 46 * label + int(rng.integers(0, 20)), int(rng.integers(4, 36))
            image[y : y + side, x : x + side, 2 * label] = 120 + strength
            image[y : y + side, x : x + side, 2 - 2 * label] = 120 - strength
            centre = (x + side / 2) / 96, (y + side / 2) / 64
            lines.append(f"{label} {centre[0]} {centre[1]} {side / 96} {side / 64}")
        Image.fromarray(image).save(tmp_path / f"data/images/{number}.png")
        (tmp_path / f"data/labels/{number}.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "light.toml").write_text(SUITE)
    (tmp_path / "mine.toml").write_text(BATTERY)
    (tmp_path / "finding.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def made(out: str = "p") -> BoxPassport:
    found = passport(SPEC, battery="mine.toml", out=out)
    assert isinstance(found, BoxPassport)
    return found


def kept_by_loop(folder: Path, shift: str) -> dict[float, tuple[int, int]]:
    """Return how many objects that are found when clean are found at each severity, and how many there are."""
    hits: dict[tuple[str, int], dict[float, bool]] = defaultdict(dict)
    rows = read(folder).filter(pl.col("output") == "boxes", pl.col("shift").is_in(["clean", shift])).collect()
    for row in rows.to_dicts():
        boxes = sorted((box for box in row["boxes"] if box["conf"] >= 0.25), key=lambda box: -box["conf"])
        taken: set[int] = set()
        for box in boxes:
            own = [
                (iou(_corners(box), _corners(obj))[0, 0], k)
                for k, obj in enumerate(row["ground_truth"])
                if obj["label"] == box["label"] and k not in taken
            ]
            if own and max(own)[0] >= 0.5:
                taken.add(max(own)[1])
        for k in range(len(row["ground_truth"])):
            hits[row["sample_id"], k][row["severity"]] = k in taken
    started = [found for found in hits.values() if found[0.0]]
    severities = sorted({severity for found in started for severity in found})
    return {at: (sum(found[at] for found in started), len(started)) for at in severities}


def _corners(box: dict[str, float]) -> np.ndarray:
    return np.array([[box[name] for name in ("x0", "y0", "x1", "y1")]])


@pytest.mark.slow
def test_every_number_follows_from_the_tables(home: Path) -> None:
    found = made()
    assert [dial.shift for dial in found.dials] == ["contrast", "gaussian_noise"]
    for dial in found.dials:
        counts = kept_by_loop(home / "p/runs" / dial.part, dial.shift)
        assert {s.severity: (s.value, s.n) for s in dial.kept} == {
            at: (pytest.approx(hit / n), n) for at, (hit, n) in counts.items()
        }
        severities, shares = zip(*((at, hit / n) for at, (hit, n) in counts.items()), strict=True)
        assert dial.lost.value == pytest.approx(
            1 - np.trapezoid(shares, severities) / severities[-1], abs=1e-9
        )
        fine = np.linspace(0, severities[-1], 200_001)
        below = fine[np.interp(fine, severities, shares) <= 0.5]
        assert dial.half.value == (pytest.approx(below[0], abs=1e-4) if len(below) else None)
        assert [setting.severity for setting in dial.map] == list(severities)
    assert list(found.weakest) == sorted(
        found.weakest, key=lambda shift: -(found.dial(shift).lost.value or 0)
    )
    assert {entry.error for entry in found.tide} == {"Cls", "Loc", "Both", "Dupe", "Bkg", "Miss"}
    assert found.knows is not None
    assert "shifted" in {entry.images for entry in found.knows.auroc}
    assert read_passport(home / "p") == found
    assert verify(home / "p")
    assert "passport" in check_passport(home / "p")
    page = (home / "p/passport.html").read_text()
    assert page.count('class="lost"') >= 2
    assert "half of the objects" in (home / "p/model_card.md").read_text()
    assert "half of the objects" in (home / "p/robustness_record.md").read_text()
    assert problems(home / "p/passport.json", "passport-boxes") == []


@pytest.mark.slow
def test_a_change_of_a_number_is_noticed(home: Path) -> None:
    made()
    text = (home / "p/passport.json").read_text()
    (home / "p/passport.json").write_text(text.replace('"conf": 0.25', '"conf": 0.3', 1))
    assert not verify(home / "p")


@pytest.mark.slow
def test_the_model_is_loaded_once_and_again_gives_the_same_bytes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = list[str](), core.model

    def counted(spec: str) -> core.Model:
        loaded.append(spec)
        return load(spec)

    monkeypatch.setattr(core, "model", counted)
    made()
    assert loaded == [SPEC]
    first = (home / "p/passport.json").read_bytes()
    for shard in sorted(home.glob("p/runs/light/predictions/*.parquet"))[1:]:
        shard.unlink()
    made()
    assert (home / "p/passport.json").read_bytes() == first


@pytest.mark.slow
def test_batteries_are_for_one_kind_of_model(home: Path) -> None:
    with pytest.raises(SoritesError, match="detector"):
        passport(SPEC, battery="full", out="q")
    with pytest.raises(SoritesError, match="classifier"):
        passport("toy", battery="mine.toml", out="q")


def test_objects_that_leave_the_image_are_left_out() -> None:
    box = {
        "x0": 0.0,
        "y0": 0.0,
        "x1": 10.0,
        "y1": 10.0,
        "label": 0,
        "conf": None,
        "area": None,
        "crowd": False,
    }
    hit = {**{name: box[name] for name in ("x0", "y0", "x1", "y1", "label")}, "conf": 0.9}
    rows = []
    for sample in ("a", "b"):
        for severity in (0.0, 1.0, 2.0):
            gone = sample == "b" and severity == 2.0
            rows.append(
                dict.fromkeys(SCHEMA)
                | {"run_id": "r", "source": "s", "sample_id": sample, "image_id": f"{sample}{severity}"}
                | {"shift": "moved" if severity else "clean", "severity": severity, "model": "m"}
                | {"output": "boxes", "probe": False}
                | {"ground_truth": [{**box, "crowd": gone}], "boxes": [hit] if severity < 2 else []}
            )
    table = pl.DataFrame(rows, schema=SCHEMA)
    assert kept_shares(table).select("severity", "value", "n").rows() == [
        (0.0, 1.0, 2),
        (1.0, 1.0, 2),
        (2.0, 0.0, 1),
    ]
    assert half_objects_severities(table)["value"].to_list() == [1.5]


@pytest.mark.slow
def test_killed_and_gone_on_with_gives_the_same_json(home: Path) -> None:
    command = [sys.executable, "-c", "from sorites.cli import main; main()", "passport", SPEC]
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    whole = [*command, "--battery", "mine.toml", "--out", "whole"]
    subprocess.run(whole, check=True, env=environment, capture_output=True)
    cut = [*command, "--battery", "mine.toml", "--out", "cut"]
    started = subprocess.Popen(cut, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(home.glob("cut/runs/*/predictions/*.parquet")) and started.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait(60)
    subprocess.run(cut, check=True, env=environment, capture_output=True)
    assert (home / "cut/passport.json").read_bytes() == (home / "whole/passport.json").read_bytes()
