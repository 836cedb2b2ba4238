"""Two models compared, the gate that says no, and a passport by a small battery."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sorites
from tools.net import images
from tools.net.hashes import Entry, of_csv, of_leaves, of_plain, of_table, without_ids
from tools.net.home import Task, below, tried, typed

SUITE = """
source = "folder:fruit"
labels = ["apple", "pear", "plum"]
shifts = [SHIFTS]
[frame]
resize = 40
"""
BATTERY = """
version = 3
about = "two suites"
minutes = 1
limit = 6
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

def logits(images):
    rows = []
    for image in images:
        small = image[::4, ::4].astype(np.float32) / 255
        rows.append(small.mean((0, 1)) * SIGN + small.std((0, 1)) * 9)
    return np.stack(rows)
"""
RULES = ("drop > 2", "drop > 60")
UNSTABLE = re.compile(
    r"version|date|machine|python|platform|seconds|command|libraries|time|run_id|made|id$|path|sha", re.I
)
"""Keys of what depends on the machine, the moment or the release."""


def tasks() -> list[Task]:
    return [
        Task(("judged/compare", "words/compare"), compared),
        Task(("judged/passport", "words/passport", "lists/passport"), passport),
    ]


def prepare(*names: str) -> list[str]:
    """Photographs, suites and models, each of another sign; gives the models' specs."""
    images.fruit("fruit")
    for suite, shifts in (("noisy", '"gaussian_noise", "jpeg"'), ("light", '"contrast", "brightness"')):
        Path(f"{suite}.toml").write_text(SUITE.replace("SHIFTS", shifts), encoding="utf-8")
    for sign, name in enumerate(names):
        Path(f"{name}.py").write_text(MODEL.replace("SIGN", str(1 - 4 * sign)), encoding="utf-8")
    return [f"python:{name}:logits" for name in names]


def compared() -> Iterator[Entry]:
    """Tables in both formats, the exit codes and answers of a gate, and the texts for machines."""
    first, second = prepare("net_first", "net_second")
    for name, model in (("base", first), ("new", second)):
        sorites.run("noisy.toml", models=[model], out=name, workers=1)
    yield from of_csv(typed("compare", "base", "new", "--format", "csv"), "judged/compare/csv")
    yield from of_leaves(
        json.loads(typed("compare", "base", "new", "--format", "json")), "judged/compare/json"
    )
    for rule in RULES:
        for how in ((), ("--estimate",)):
            files = ("--junit", "gate.xml", "--markdown", "gate.md")
            code, _, said = tried("compare", "base", "new", "--fail-if", rule, *how, *files)
            called = f"{rule}{' '.join(how)}"
            yield f"judged/compare/gate/{called}", of_plain([code, re.findall(r"\d+(?:\.\d+)?", said)])
            for file in ("gate.xml", "gate.md", "compare.html"):
                yield (
                    f"words/compare/{called}/{file}",
                    of_plain(without_ids(Path(file).read_text(encoding="utf-8"))),
                )
    found = sorites.compare("base", "new")
    yield from of_leaves(found.dials.to_dicts(), "judged/compare/api")


def passport() -> Iterator[Entry]:
    """The document key by key, its runs, the badge and the card; and two passports compared."""
    first, second = prepare("net_pass", "net_other")
    Path("mine.toml").write_text(BATTERY, encoding="utf-8")
    for name, model in (("one", first), ("two", second)):
        said = typed("passport", model, "--battery", "mine.toml", "--out", name, "--workers", "1")
        yield f"words/passport/{name}", of_plain(said)
        held = json.loads(Path(name, "passport.json").read_text(encoding="utf-8"))
        yield f"lists/passport/{name}", sorted(held)
        yield from below(f"judged/passport/{name}", of_leaves(stable(held)))
        for run in sorted(Path(name, "runs").iterdir()):
            yield from below(f"judged/passport/{name}/runs/{run.name}", of_table(sorites.read(run).collect()))
        for file in ("badge.svg", "model_card.md"):
            yield (
                f"words/passport/{name}/{file}",
                of_plain(without_ids(Path(name, file).read_text(encoding="utf-8"))),
            )
    yield from of_csv(typed("compare", "one", "two", "--format", "csv"), "judged/passport/compared")


def stable(value: Any) -> Any:
    """A document without what depends on the machine, the moment or the release."""
    if isinstance(value, dict):
        return {key: stable(part) for key, part in value.items() if not UNSTABLE.search(key)}
    return [stable(part) for part in value] if isinstance(value, list) else value
