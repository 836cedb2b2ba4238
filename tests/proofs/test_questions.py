"""Examples of questions that take seconds run as they stand; every question has a check and a picture of its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from proof._examples import kept, typed
from proof.questions import CHECKS, holds, printed

from sorites.apps.asking import questions

PICTURES = Path(__file__).parents[2] / "docs" / "answers"
FAST = ("write-images", "in-my-pipeline", "hugging-face")
MEGABYTES = 2.0


def test_every_question_has_a_check_and_a_picture() -> None:
    names = {one.name for one in questions()}
    assert set(CHECKS) == names
    files = sorted(PICTURES.iterdir())
    assert {file.stem for file in files} == names
    assert sum(file.stat().st_size for file in files) < MEGABYTES * 1e6
    for file in files:
        with Image.open(file) as picture:
            assert 400 <= picture.width <= 920, file.name
            assert 100 <= picture.height <= 640, file.name


def test_a_printed_table_is_read() -> None:
    text = "\n model   shift            value   n\n ─────────────\n lite0   jpeg              –   24\n lite0   defocus_disk    5.5   24\n\n"
    assert printed(text) == [
        {"model": "lite0", "shift": "jpeg", "value": "–", "n": "24"},
        {"model": "lite0", "shift": "defocus_disk", "value": "5.5", "n": "24"},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_a_fast_example_runs_and_answers_its_question(name: str, tmp_path: Path) -> None:
    question = next(one for one in questions() if one.name == name)
    answer = typed(question, tmp_path)
    assert [(line.line, line.err) for line in answer.typed if line.code] == []
    assert holds(answer)
    assert kept(name, tmp_path) == answer
