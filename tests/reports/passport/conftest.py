"""A small user-defined battery: two suites on twenty scenes, and a model function."""

from __future__ import annotations

from pathlib import Path

import pytest

SUITE = """
source = "folder:{photos}"
labels = ["n01440764", "n01443537", "n01484850", "n01491361"]
shifts = [{shifts}]
[frame]
resize = 40
"""
BATTERY = """
version = 3
about = "two suites"
minutes = 1
limit = 20
scorers = ["msp"]
[[parts]]
name = "noise"
suite = "noisy.toml"
[[parts]]
name = "light"
suite = "light.toml"
shifts = ["contrast"]
"""
MODEL = """
import numpy as np
LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]
def logits(images):
    rows = []
    for image in images:
        small = image[::4, ::4].astype(np.float32) / 255
        seed = int(np.asarray(image[::9, ::9], np.int64).mean() * 7) % 4
        rows.append(np.eye(4, dtype=np.float32)[seed] * small.std() * 9 + np.float32(small.mean()))
    return np.stack(rows)
"""


@pytest.fixture
def home(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the battery, its suites and the model."""
    (tmp_path / "noisy.toml").write_text(SUITE.format(photos=photos, shifts='"gaussian_noise", "jpeg"'))
    (tmp_path / "light.toml").write_text(SUITE.format(photos=photos, shifts='"contrast", "brightness"'))
    (tmp_path / "mine.toml").write_text(BATTERY)
    (tmp_path / "guessing.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
