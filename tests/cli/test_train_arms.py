from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Command
from tests.conftest import CLASSES

from sorites.cli.training import gain_lines

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
def test_arms_are_trained_judged_and_written_on_one_page(
    command: Command, photos: Path, tmp_path: Path
) -> None:
    filled = {
        "PHOTOS": photos.as_posix(),
        "LABELS": str(list(CLASSES)),
        "SUITE": (tmp_path / "judged.toml").as_posix(),
    }
    for name, text in (("r.toml", RECIPE), ("judged.toml", SUITE)):
        for word, value in filled.items():
            text = text.replace(word, value)
        (tmp_path / name).write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    code, said, _ = command(
        "train", "arms", str(tmp_path / "r.toml"), "--arms", "none,flip", "--out", str(out)
    )
    assert code == 0
    assert said.startswith("flip: clean ")
    assert " in noise at severity 0.1 " in said.splitlines()[0]
    assert f"{out / 'arms.html'}" in said
    gains = pl.read_csv(out / "gains.csv")
    assert gains.select("family", "severity", "arm", "n", "over").rows() == [
        ("clean", 0.0, "flip", 20, "none"),
        ("noise", 0.1, "flip", 20, "none"),
    ]
    assert (out / "models" / "flip_0" / "train.html").exists()
    assert "Gains over no augmentation" in (out / "arms.html").read_text(encoding="utf-8")


def test_each_arm_has_a_line_with_its_clean_gain_and_where_it_gains_most() -> None:
    rows = [
        ("optics", "clean", 0.0, -0.01, -0.03, 0.01),
        ("optics", "noise", 1.0, -0.02, -0.03, -0.01),
        ("optics", "optics", 3.0, 0.18, 0.12, 0.24),
        ("flip", "clean", 0.0, 0.0, -0.01, 0.01),
        ("flip", "camera", None, -0.05, -0.06, -0.04),
    ]
    found = pl.DataFrame(
        rows, ["arm", "family", "severity", "value", "low", "high"], orient="row"
    ).with_columns(suite=pl.lit("s"))
    assert gain_lines(found) == [
        (
            "optics: clean -1.0 points [-3.0, +1.0], largest gain in optics at severity 3 +18.0 points"
            " [+12.0, +24.0]"
        ),
        (
            "flip: clean +0.0 points [-1.0, +1.0], no gain under shift, smallest loss in camera -5.0 points"
            " [-6.0, -4.0]"
        ),
    ]
    both = gain_lines(pl.concat([found, found.with_columns(suite=pl.lit("t"))]))
    assert [line.split(":")[0] for line in both] == ["optics (s)", "flip (s)", "optics (t)", "flip (t)"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arms", "none"], "need at least two to compare"),
        (["--arms", "none,optik"], "no augmentation named 'optik'. Did you mean optics"),
        (["--suite", "nowhere"], "no suite named 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_in_words(
    command: Command, tmp_path: Path, words: list[str], said: str
) -> None:
    code, _, err = command("train", "arms", "cifar_optics", "--out", str(tmp_path / "out"), *words)
    assert code != 0
    assert said in err
    assert not (tmp_path / "out").exists()
