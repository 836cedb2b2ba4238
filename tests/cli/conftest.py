"""A folder to type commands in, a way to type them, and a finished run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sorites
from sorites import cli
from sorites.core import Model, progress
from sorites.suites.suite import parse

Command = Callable[..., tuple[int, str, str]]
"""A function that types a command and returns its exit code, standard output and standard error."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Command:
    """Type a command inside the folder ``home``."""
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    # On a busy machine anything may take long enough to be named.
    monkeypatch.setattr(progress, "FIRST_SECONDS", 3600.0)

    def typed(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sorites", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return typed


@pytest.fixture
def home(tmp_path: Path, photos: Path) -> Path:
    """A folder with a suite and a model of the user's in it."""
    (tmp_path / "means.py").write_text(
        "import numpy as np\n"
        "def logits(images):\n"
        "    means = np.stack([np.resize(p[::4, ::4].mean(axis=(0, 1)), 1000) for p in images])\n"
        "    return (means / 25 + np.sin(np.arange(1000))).astype(np.float32)\n"
    )
    (tmp_path / "s.toml").write_text(
        f'about = "small"\nsource = "folder:{photos}"\nmodels = ["python:means:logits"]\nshifts ='
        ' ["jpeg"]\nlimit = 3\nreference = "python:means:logits"\n[frame]\nresize = 32\n'
    )
    return tmp_path


@pytest.fixture(scope="session")
def run(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two models under two shifts, with refined failure severities."""
    out = tmp_path_factory.mktemp("cli") / "run"
    suite = parse(
        {"name": "s", "shifts": ["contrast", "brightness"], "reference": "one", "frame": {"resize": 40}},
        "test",
    )
    sorites.run(
        suite, source=f"folder:{photos}", models=[tiny("one"), tiny("two")], out=out, limit=8, refine=0.02
    )
    return out
