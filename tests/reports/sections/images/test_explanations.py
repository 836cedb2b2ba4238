from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from sorites.core.errors import Damaged
from sorites.evaluation.storage.explanations import (
    KINDS,
    Change,
    Explanations,
    Side,
    image_files,
    read_changes,
    write_changes,
    write_image,
)
from sorites.reports.section import Section
from sorites.reports.sections.images import explanations
from sorites.reports.view import RunView, merge


def side(file: str, model: str, correct: bool, pred: int, severity: float = 75.0, **other: object) -> Side:
    shift = "jpeg" if severity else "clean"
    known = {
        "image_id": f"i{severity}",
        "params": "{}",
        "version": "1",
        "conf": 0.61,
        "target": pred,
        "layer": "layer4",
    }
    return Side(
        file=file,
        shift=shift,
        severity=severity,
        model=model,
        correct=correct,
        pred=pred,
        **{**known, **other},
    )


CHANGES = (
    Change(
        between="models",
        sample_id="a<i>.png",
        label=4,
        sides=(side("a", "lite0", False, 1), side("b", "lite1", True, 4)),
    ),
    Change(
        between="settings",
        sample_id="b.png",
        label=2,
        sides=(side("c", "lite0", True, 2, 0.0), side("d", "lite0", False, 3, target=2, empty=True)),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, file in enumerate("abcd"):
        for kind in KINDS:
            image = np.full((30, 30, 3), 40 * number + 10 * KINDS.index(kind), np.uint8)
            write_image(image, tmp_path, file, kind)
    write_changes(tmp_path, CHANGES)
    return tmp_path


def made(run: RunView, folder: Path) -> Section | None:
    held = Explanations(folder, read_changes(folder))
    return explanations.explanations(merge([dataclasses.replace(run, explanations=held)]))


def test_a_card_shows_both_sides_with_three_images_each(run: RunView, folder: Path) -> None:
    section = made(run, folder)
    assert section is not None
    assert section.body.count("<img") == 12
    assert re.findall(r'data-pick="([^"]*)"', section.body) == [
        "lite1 correct, lite0 wrong",
        "lite0: correct clean, wrong shifted",
    ]
    assert section.body.count('<figure class="wrong">') == 2
    assert "&lt;b&gt;tank &amp; tower&lt;/b&gt;" in section.body
    assert "a&lt;i&gt;.png" in section.body
    assert "no evidence for teapot" in section.body
    assert "guided Grad-CAM for teapot" in section.body
    assert "lite0, jpeg: JPEG quality 25" in section.body
    assert "layer4 of lite0, layer4 of lite1" in str(section.lead)


def test_flips_without_images_are_left_out(run: RunView, folder: Path) -> None:
    for name in ("a-cam", "c-guided"):
        image_files(folder)[name].unlink()
    assert made(run, folder) is None


def test_a_damaged_image_is_named(run: RunView, folder: Path) -> None:
    path = image_files(folder)["c-guided"]
    path.write_bytes(b"no image")
    with pytest.raises(Damaged, match=path.name):
        made(run, folder)


def test_there_is_no_section_without_explanations(run: RunView, tmp_path: Path) -> None:
    assert read_changes(tmp_path) == ()
    assert explanations.explanations(merge([run])) is None


def test_images_beyond_the_allowance_are_counted(
    run: RunView, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "IMAGE_BYTES", 1)
    section = made(run, folder)
    assert section is not None
    assert section.body.count("<img") == 6
    assert "1 more are in the run folder" in str(section.lead)
