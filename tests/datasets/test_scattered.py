"""Composites of several objects as a folder: read back with the same boxes, by any of its three faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sorites import core
from sorites.cli import app
from sorites.core import Generated, Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import coco
from sorites.datasets.context import build_scattered


def disc(name: str, label: int) -> Sample:
    y, x = np.mgrid[:90, :120]
    alpha = np.where((x - 60) ** 2 + (y - 45) ** 2 < 30**2, 255, 0).astype(np.uint8)
    image = np.where(alpha[..., None] > 0, np.array((200, 40, 40), np.uint8), np.uint8(128))
    return Sample(name, Generated(lambda: image), label, alpha=lambda: alpha)


@pytest.fixture(autouse=True)
def objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        core.SOURCES._objects, "discs", lambda path, labels: [disc(f"d{i}", i) for i in (0, 2, 15)]
    )


def test_a_folder_of_composites_is_read_back_as_context_folder_and_coco(tmp_path: Path) -> None:
    out = tmp_path / "made"
    count, boxes = build_scattered(out, "discs", objects="2..6", size=160, limit=5, drawn=True)
    assert count == 5
    read = {
        spec: core.source(spec, coco()).samples
        for spec in (f"context:{out}", f"folder:{out}", f"coco:{out}/annotations.json")
    }
    for found in read.values():
        assert sum(len(sample.ground_truth or ()) for sample in found) == boxes
    first, again, other = read.values()
    assert (
        [s.ground_truth for s in first] == [s.ground_truth for s in again] == [s.ground_truth for s in other]
    )
    assert {attr.key for attr in first[0].attrs} >= {"location", "objects"}
    for a, b in zip(first, other, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())
    with pytest.raises(SoritesError, match="objects differs"):
        build_scattered(out, "discs", limit=1, drawn=True)


def test_cut_outs_without_masks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        core.SOURCES._objects,
        "plain",
        lambda path, labels: [Sample("a", Generated(lambda: np.zeros((8, 8, 3), np.uint8)), 0)],
    )
    with pytest.raises(SoritesError, match="no sample of plain"):
        build_scattered(tmp_path / "x", "plain", drawn=True)


def test_the_verb(tmp_path: Path) -> None:
    words = [
        "context",
        "--source",
        "discs",
        "--objects",
        "1..3",
        "--size",
        "128",
        "--limit",
        "2",
        "--drawn",
        "--out",
        str(tmp_path / "c"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "wrote 2 images with" in done.output
    assert "next: sorites run boxes_demo --source context:" in done.output.replace("\n", "")
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        ".sorites.lock", "annotations.json", "croissant.json", "images", "sorites.json", "sorites.parquet",
    ]  # fmt: skip
    done = CliRunner().invoke(app, ["context", "--objects", "none", "--out", str(tmp_path / "d")])
    assert done.exit_code != 0
