"""The page of a training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sorites.reports.training import training_page

RECORD: dict[str, Any] = {
    "network": "small",
    "classes": ["cat", "<dog>"],
    "input": {"size": [32, 32]},
    "recipe_hash": "aa",
    "data_hash": "bb",
    "steps": 20,
    "images": {"training": 1200, "validation": 400},
    "parent": {"spec": "small", "weights": None},
    "versions": {"torch": "2"},
    "validation": {"accuracy": 0.75, "n": 400, "low": 0.705, "high": 0.79},
    "recipe": {
        "name": "r",
        "batch": 8,
        "accumulate": 2,
        "seed": 3,
        "augment": {"names": "optics"},
        "steps": 20,
        "epochs": None,
        "data": {"source": "folder:<x>"},
        "stages": [{"steps": 1}],
    },
}
ROWS = [
    {"step": i, "lr": 0.1, "loss": 2 / i, "accuracy": i / 30, "images_per_second": 100.0 + i}
    for i in range(1, 21)
]
JUDGED = {
    "step": 20,
    "validation_loss": 0.7,
    "validation_accuracy": 0.75,
    "n": 400,
    "low": 0.705,
    "high": 0.79,
}


def test_it_says_what_was_reached_and_from_what(tmp_path: Path) -> None:
    page = training_page(RECORD, [*ROWS, JUDGED], tmp_path / "t.html").read_text()
    assert "75.0\u202f% of the validation images" in page
    assert "95 %: 70.5 to 79.0\u202f%, n = 400" in page
    assert "random weights" in page
    assert "with the augmentation optics" in page
    assert "batch 16" in page
    assert "&lt;dog&gt;" in page
    assert "folder:&lt;x&gt;" in page
    assert "stages.0.steps" in page
    assert ">epochs<" not in page
    assert "1\u202f200 training images · 400 validation images" in page
    assert len(re.findall('class="chart"', page)) == 3
    assert "default-src 'none'" in page


def test_without_a_validation_part_it_says_so(tmp_path: Path) -> None:
    page = training_page({**RECORD, "validation": None}, ROWS, tmp_path / "t.html").read_text()
    assert "not evaluated on validation images" in page
    assert "small, trained for 20 steps" in page
