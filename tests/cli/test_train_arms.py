from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command
from tests.conftest import CLASSES

RECIPE = """
model = "small"
steps = 2
batch = 4
suites = ["SUITE"]
[data]
source = "folder:PHOTOS"
labels = LABELS
validation = 0.2
[optimiser]
lr = 0.01
"""
SUITE = """
source = "folder:PHOTOS"
labels = LABELS
shifts = [{ name = "gaussian_noise", severities = [0.1] }]
"""


@pytest.mark.slow
def test_arms_are_trained_judged_and_written_on_one_page(command: Command, photos: Path, tmp_path: Path) -> None:
    filled = {"PHOTOS": photos.as_posix(), "LABELS": str(list(CLASSES)), "SUITE": (tmp_path / "judged.toml").as_posix()}
    for name, text in (("r.toml", RECIPE), ("judged.toml", SUITE)):
        for word, value in filled.items():
            text = text.replace(word, value)
        (tmp_path / name).write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    code, said, _ = command("train", "arms", str(tmp_path / "r.toml"), "--arms", "none,flip", "--out", str(out))
    assert code == 0
    assert said.startswith("flip: clean ")
    assert f"the page is {out / 'arms.html'}" in said
    gains = pl.read_csv(out / "gains.csv")
    assert gains.select("family", "severity", "arm", "n", "over").rows() == [
        ("clean", 0.0, "flip", 20, "none"),
        ("noise", 0.1, "flip", 20, "none"),
    ]
    assert (out / "models" / "flip_0" / "train.html").exists()
    assert "Gains over no augmentation" in (out / "arms.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arms", "none"], "wanted at least two to compare"),
        (["--arms", "none,optik"], "no augmentation named 'optik'. Did you mean optics"),
        (["--suite", "nowhere"], "no suite named 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_in_words(command: Command, tmp_path: Path, words: list[str], said: str) -> None:
    code, _, err = command("train", "arms", "cifar_optics", "--out", str(tmp_path / "out"), *words)
    assert code != 0
    assert said in err
    assert not (tmp_path / "out").exists()
