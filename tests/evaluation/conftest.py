"""A small encoder of our own that stands for the large ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sorites.suites.suite import Distance, Suite, parse

MODULE = """
import numpy as np
rng = np.random.default_rng(0)
WORDS = {word: rng.standard_normal(12) for word in "cat dog frog ship photo sketch toy".split()}
class Judge:
    version = "1"
    labels = ("cat", "dog", "frog", "ship")
    styles = (("a photo of a {}",), ("a sketch of a {}",), ("a toy {}",))
    def images(self, images):
        rows = [np.concatenate([p.mean((0, 1)), p.std((0, 1)), p[::2].mean((0, 1)), p[:, ::2].mean((0, 1))]) for p in images]
        return np.array(rows) - 100
    def texts(self, sentences):
        return np.array([sum(WORDS[w] for w in s.split() if w in WORDS) for s in sentences])
"""


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"judge_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    return f"python:{name}:Judge"


def how(judge: str, photos: Path, **more: object) -> Distance:
    return Distance.model_validate(
        {"encoder": judge, "against": f"folder:{photos}", "k": 3, "levels": 4, **more}
    )


def suite(how: Distance) -> Suite:
    small = {"name": "small", "frame": {"resize": 64, "crop": 56}, "shifts": ["style"], "scorers": ["msp"]}
    return parse({**small, "distance": how.model_dump()}, "test")
