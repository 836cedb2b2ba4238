"""Every option of every verb with hostile words, typed in this process: an exit code with a
message, never a traceback.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import strategies as st
from tests.fuzz import bounds, hostile, worlds
from tests.fuzz.verbs import typed

import sorites
from sorites.cli import app
from sorites.core import METRICS, Model
from sorites.core.table import SCHEMA
from sorites.suites.suite import parse

VERBS: dict[str, list[str]] = {
    "run": ["run", "s.toml", "--out", "made"],
    "build": ["build", "s.toml", "--out", "made"],
    "show": ["show", "contrast", "a.png", "--out", "made.png"],
    "list": ["list", "shifts"],
    "check": ["check", "run"],
    "metrics": ["metrics", "run", "accuracy"],
    "import": ["import", "p.csv", "--as", "csv", "--out", "made"],
    "score": ["score", "run", "--scorer", "msp"],
    "similarity": ["similarity", "run", "--measure", "psnr"],
    "filter": ["filter", "run"],
    "features": ["features", "run"],
    "sheet": ["sheet", "run", "--out", "made.png"],
    "kernels match": ["kernels", "match", "--mode", "4", "--level", "1"],
    "lens list": ["lens", "list"],
    "lens select": ["lens", "select", "--n", "2"],
    "lens show": ["lens", "show", "TessarLens", "--out", "made.png"],
    "lens photo": ["lens", "photo", "TessarLens", "a.png", "--out", "made"],
    "context": ["context", "--out", "made", "--source", "folder:photos", "--drawn", "--limit", "1"],
}
"""A valid command of each verb.

``report`` takes seconds and ``distance`` needs an encoder: both are asked only of folders.
"""

OFTEN = ("metrics", "show", "lens select", "import", "check", "run", "build")
PLACES = (
    "/dev/full",
    "/dev/null",
    "/dev/null/x",
    "",
    ".",
    "..",
    "a" * 300,
    "x\x00y",
    "a.png",
    "photos",
    "no/such/x",
    "[1]",
    "made[1]",
    "é",
)
LARGE = ("999999999999", "9" * 30, "-999999999999")
SLOW = {("kernels match", "--criterion"), ("run", "--engine"), ("filter", "--engine"), ("context", "--limit")}
"""Options whose valid values take long; hostile words of other options are enough."""


def options_of(verb: str) -> list[tuple[str, bool]]:
    """Return the options of a verb, and whether each takes a place on disk."""
    command: Any = typer.main.get_command(app)
    for word in verb.split():
        command = command.commands[word]
    params = [param for param in command.params if param.opts[0].startswith("--") and not param.is_flag]
    return [
        (param.opts[0], param.opts[0] == "--out" or param.metavar in ("FILE", "DIR", "PATH"))
        for param in params
    ]


@pytest.fixture
def home(tmp_path: Path, photos: Path, tiny: Callable[..., Model], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a suite, an image, predictions and a small finished run."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    shutil.copytree(photos, here / "photos")
    (here / "a.png").write_bytes(worlds.png())
    (here / "p.csv").write_text("sample,label,pred,model\na,1,1,m\nb,2,3,m\n")
    (here / "blank.py").write_text(
        "import numpy as np\ndef logits(images):\n    return np.zeros((len(images), 1000), np.float32)\n"
    )
    (here / "s.toml").write_text(
        'source = "folder:photos"\nmodels = ["python:blank:logits"]\nshifts = [{name = "contrast", levels ='
        " [1]}]\nlimit = 1\n[frame]\nresize = 32\n"
    )
    suite = parse(
        {
            "name": "s",
            "shifts": [{"name": "contrast", "levels": [1, 3]}],
            "scorers": ["msp"],
            "frame": {"resize": 32},
        },
        "test",
    )
    sorites.run(
        suite,
        source="folder:photos",
        models=[tiny("one"), tiny("two")],
        out=here / "run",
        limit=3,
        keep_features=True,
    )
    return here


@pytest.mark.slow
@bounds.shares
def test_options(share: float, home: Path) -> None:
    asked = [
        (verb, name, placed)
        for verb in VERBS
        for name, placed in options_of(verb)
        if (verb, name) not in SLOW
    ]
    often = [one for one in asked if one[0] in OFTEN]
    whole = {
        path.relative_to(home): path.read_bytes()
        for path in sorted((home / "run").rglob("*"))
        if path.is_file()
    }

    def run(case: tuple[tuple[str, str, bool], int]) -> None:
        (verb, name, placed), seed = case
        rng = random.Random(seed)
        word = (
            rng.choice(PLACES)
            if placed
            else rng.choice((*hostile.WORDS, *LARGE, "0", "-1", "nan", "inf", "1e999"))
        )
        command = [*VERBS[verb], name, word]
        if rng.random() < 0.2:
            command[rng.randrange(len(command))] = rng.choice(hostile.WORDS)
        try:
            typed(*command)
        finally:
            for made in home.iterdir():
                if made.name.startswith("made"):
                    shutil.rmtree(made) if made.is_dir() else made.unlink()
            for path, data in whole.items():
                if not (home / path).is_file() or (home / path).stat().st_size != len(data):
                    (home / path).parent.mkdir(parents=True, exist_ok=True)
                    (home / path).write_bytes(data)

    bounds.fuzz(
        "options",
        share,
        st.tuples(st.one_of(st.sampled_from(asked), st.sampled_from(often)), hostile.seeds),
        run,
    )


@bounds.shares
def test_metrics(share: float, home: Path) -> None:
    columns = [*SCHEMA, "value", "n", "version", "set", "(whole table)", "group", *hostile.WORDS[:40]]

    def run(case: tuple[str, int]) -> None:
        metric, seed = case
        rng = random.Random(seed)
        words = ["metrics", "run", metric, "--by", ",".join(rng.choices(columns, k=rng.choice((1, 1, 2, 3))))]
        words += ["--reference", "one"] if rng.random() < 0.3 else []
        words += (
            [
                "--option",
                (
                    f"{rng.choice(('min_n', 'bins', 'k', 'framework', 'relative', 'split', 'x', ''))}={rng.choice(hostile.WORDS)}"
                ),
            ]
            if rng.random() < 0.3
            else []
        )
        typed(*words, "--format", rng.choice(("table", "csv", "json")))

    bounds.fuzz("metrics", share, st.tuples(st.sampled_from(METRICS.names()), hostile.seeds), run)
