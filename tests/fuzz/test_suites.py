"""Suites in TOML, and the specs of sources, shifts, scorers, models and labels as people type them."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tests.fuzz import bounds, hostile

from sorites import core
from sorites.analysis.filter.rules import read_thresholds
from sorites.core.labels import imagenet, labels
from sorites.evaluation.imports.read import read_naming
from sorites.measures.decomposition import read_names, read_styles
from sorites.suites import suite

OWN = """
about = "small"
source = "folder:x"
labels = ["a", "b"]
models = ["onnx:x.onnx"]
scorers = ["msp", "knn(k=10)", {name = "react", percentile = 90}]
limit = 5
seed = 3
refine = 0.02
similarity = ["ssim"]
lpips_below = 0.5
shifts = ["jpeg", {name = "coma", levels = [1, 2]}, {name = "contrast", severities = [0.1, 0.5]},
          {name = "camera", settings = [{light = "on"}]}]
frame = {resize = 40, crop = 32, filter = "bilinear"}
[[sources]]
spec = "folder:y"
name = "far"
group = "far"
limit = 3
[fit]
source = "folder:z"
search = true
validation = {split = "val", limit = 5}
[distance]
encoder = "cifar"
against = "folder:x"
sem_edges = [0.1, 0.2]
"""
VOTES = "text = 0.1\\nclass = 0.2\\n[thresholds]\\ntext_class = 1\\n".replace("\\n", "\n")
COLUMNS = (
    '[columns]\npred = "p"\n"params.iso" = "iso"\n[constants]\nmodel = "m"\nsplit = "test"\nhigher = "x"\n'
)
NAMES = "n02123045 tabby, tabby cat\ndog\nn01440764\n\ufeffcrane_bird\n"


def texts() -> list[tuple[str, str]]:
    """Return valid files by their names: built-in suites, one with every key, and the small files
    of options.
    """
    builtin = files("sorites").joinpath("suites")
    some = [
        (f"{name}.toml", builtin.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
        for name in ("demo", "optics_bench", "is_ood")
    ]
    return [
        *some,
        *[("own.toml", OWN)] * 4,
        ("columns.toml", COLUMNS),
        ("votes.toml", VOTES),
        ("votes.json", '{"text": 0.1}'),
        ("names.txt", NAMES),
    ]


def load(path: Path) -> None:
    """Read the file by everything that reads such files."""
    if path.suffix == ".txt":
        labels(str(path))
        read_names(path)
        read_styles(path)
    elif path.stem == "columns":
        read_naming(path)
    elif path.stem == "votes":
        read_thresholds(path)
    else:
        made = suite.load(path)
        for dial in made.shifts:
            dial.setting_values()
        made.override(limit=3).model_dump_json()


@bounds.shares
def test_suites(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert suite.parse({"name": "own", **tomllib.loads(OWN)}, "own").fit is not None
    base = st.sampled_from(texts())

    def run(case: tuple[tuple[str, str], int]) -> None:
        (name, text), seed = case
        rng = random.Random(seed)
        data = (
            hostile.spoilt(text.encode(), seed)
            if rng.random() < 0.2
            else hostile.reworded(text, seed).encode("utf-8", "replace")
        )
        (tmp_path / name).write_bytes(rng.choice((b"", b"", b"\xef\xbb\xbf", b"\xff\xfe")) + data)
        load(tmp_path / name)

    bounds.fuzz("suites", share, st.tuples(base, hostile.seeds), run)


def option(name: str) -> Callable[[str], object]:
    """Return how an option of a shift is tried: as text, and as what TOML makes of it."""
    from sorites.core.options import key_values

    return lambda text: core.shift(name, **key_values([text], "option"))


SPECS: dict[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "source": (("folder:", "cns_bench:", "focus:", "is_ood:", "webdataset:", "imagenet_es:", "context:", "cifar:",
    "", "stamps:", "stamps_ood:",
                "cns_bench:x?", "focus:x?uncommon=", "is_ood:x,", "is_ood:x,each=", "webdataset:{0..",
                "cifar:train,"), lambda text: core.source(text, imagenet())),
    "scorer": (("", "knn(k=", "knn(", "react(percentile=", "msp", "msp(", "vim(dim=", "x.y(", "ash(percentile="), core.scorer),
    "scorer name": (("", "knn(k=", "knn(", "react(percentile=90, ", "knn(k=10)"), core.scorer_name),
    "model": (("", "onnx:", "python:", "python:json:", "python:math:", "python:nosuch:", "python:a.b:"), core.model),
    "shift": (("", "coma", "lens", "jpeg "), core.shift),
    "option coma": (("", "padding=", "kernels=", "size="), option("coma")),
    "option lens": (("lenses=", "padding="), option("lens")),
    "option tilt": (("tolerances=", "field=", "padding="), option("tilt")),
    "labels": (("", "imagenet"), labels),
    "class": (("", "n0", "28", "tabby"), lambda text: imagenet().find(text)),
    "suite": (("", "demo", "x.toml", "./"), suite.load),
    "measure": (("",), core.measure),
    "encoder": (("python:", "python:json:", ""), core.encoder),
}  # fmt: skip
SAFE = [word for word in hostile.WORDS if not word.startswith(("imagenet", "~"))] + [
    "imagenet",
    "~nobody_at_all",
]


@bounds.shares
def test_specs(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(case: tuple[str, int]) -> None:
        kind, seed = case
        rng = random.Random(seed)
        starts, read = SPECS[kind]
        text = (
            rng.choice(starts)
            + rng.choice(SAFE)
            + rng.choice(("", "", "", ")", "?", "/x", "=1", rng.choice(SAFE)))
        )
        if not (kind == "model" and text in ("python:math:", "python:json:")):
            read(text)

    bounds.fuzz("specs", share, st.tuples(st.sampled_from(sorted(SPECS)), hostile.seeds), run)
