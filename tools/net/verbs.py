"""Verbs that write folders and print answers: ``build``, ``context``, ``run`` and ``metrics`` as
they are typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import sorites
from tools.net import images
from tools.net.hashes import Entry, of_csv, of_folder, of_leaves, of_plain, of_table, without_ids
from tools.net.home import Task, typed
from tools.net.models import FUNCTION

ASKED = (
    ("accuracy", "--by", "model, shift"),
    ("failure_severity", "--option", "relative=true"),
    ("calibration_error", "--option", "bins=5"),
    ("corruption_error",),
    ("auroc", "--framework", "model-specific"),
    ("lens_field",),
)


def tasks() -> list[Task]:
    return [Task(("build",), built), Task(("context",), stood), Task(("typed", "words/typed"), asked)]


def built() -> Iterator[Entry]:
    """Dataset folders of dials and of a grid, lossless and as JPEG, one image of them broken; and
    a run over one of them.
    """
    images.photos("photos", 3, broken=True)
    shared = ("--source", "folder:photos", "--seed", "2")
    typed(
        "build", "demo", "--out", "dial", "--shift", "jpeg", "--shift", "shot_noise", "--level", "3", *shared
    )
    typed("build", "camera", "--out", "grid", "--shift", "style", "--quality", "80", *shared)
    for folder in ("dial", "grid"):
        yield from (
            (f"build/{folder}/{part}", digest) for part, digest in of_folder(Path(folder), "sorites.json")
        )
    again = sorites.run("demo", source="folder:dial", shifts=["jpeg"], models=["lite0"], out="run", workers=1)
    yield from ((f"build/run again/{part}", digest) for part, digest in of_table(again.collect()))


def stood() -> Iterator[Entry]:
    """Composites before photographs and before drawn places."""
    typed("context", "--out", "photographed", "--limit", "3", "--seed", "1")
    typed("context", "--out", "drawn", "--limit", "8", "--drawn")
    for folder in ("photographed", "drawn"):
        yield from (
            (f"context/{folder}/{part}", digest) for part, digest in of_folder(Path(folder), "sorites.json")
        )


def asked() -> Iterator[Entry]:
    """A run over classes and a model of the user's own, gone on with, and its answers in each format."""
    images.fruit("fruit")
    Path("own_typed.py").write_text(FUNCTION.replace("1000", "3"), encoding="utf-8")
    own = (
        "--source",
        "folder:fruit",
        "--labels",
        "fruit.txt",
        "--model",
        "python:own_typed:logits",
        "--scorer",
        "energy",
    )
    words = (
        "run",
        "demo",
        *own,
        "--shift",
        "contrast",
        "--shift",
        "jpeg",
        "--batch",
        "3",
        "--workers",
        "1",
        "--out",
        "run",
    )
    for time in ("first", "again"):
        yield f"words/typed/run/{time}", of_plain(typed(*words))
    yield "words/typed/run/refined", of_plain(typed(*words, "--refine", "0.1"))
    yield from ((f"typed/run/{part}", digest) for part, digest in of_table(sorites.read("run").collect()))
    yield "words/typed/check", of_plain(without_ids(typed("check", "run")))
    for metric, *more in ASKED:
        reference = ("--reference", "python:own_typed:logits") if metric == "corruption_error" else ()
        for kind in ("csv", "json", "table"):
            said = typed("metrics", "run", metric, *more, *reference, "--format", kind)
            called = f"typed/metrics/{metric}/{kind}"
            if kind == "csv":
                yield from of_csv(said, called)
            elif kind == "json":
                yield from of_leaves(json.loads(said), called)
            else:
                yield f"words/{called}", of_plain(said)
