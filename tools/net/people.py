"""Annotation without a browser: imported answers of several people, their agreement, every format,
heads and studies.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import sorites
from tools.net import images
from tools.net.hashes import Entry, of_csv, of_file, of_leaves, of_plain, of_table
from tools.net.home import Task, below, typed
from tools.net.renames import now

CLASS = ("class", "partly", "not class")
PLACES = ("grass", "sand", "water", "street", "none")
BOXES = "coco"


def tasks() -> list[Task]:
    return [
        Task(("people/in_class", "words/people"), in_class),
        Task(("people/context",), context),
        Task(("people/boxes",), boxes),
        Task(("people/heads",), heads),
        Task(("people/run",), of_run),
    ]


def header() -> str:
    """The column of the image's name in tables of answers."""
    return now("columns")("image")


def in_class() -> Iterator[Entry]:
    """Two people who differ on some images: status, agreement, study and the formats of one question."""
    for who, step in (("ann", 1), ("ben", 2)):
        rows = "".join(f"p{i:02d}.png,{CLASS[i * step % 3]}\n" for i in range(12))
        Path(f"{who}.csv").write_text(f"{header()},class\n" + rows, encoding="utf-8")
        typed(
            "annotate",
            "import",
            f"{who}.csv",
            "--as",
            "csv",
            "--task",
            "in_class",
            "--annotator",
            who,
            "--out",
            "l.sqlite",
        )
    for verb in ("status", "agreement"):
        yield f"words/people/{verb}", of_plain(typed("annotate", verb, "l.sqlite"))
        yield from of_csv(typed("annotate", verb, "l.sqlite", "--format", "csv"), f"people/in_class/{verb}")
    yield from of_csv(
        typed("annotate", "study", "--answers", "l.sqlite", "--format", "csv"), "people/in_class/study"
    )
    yield from _formats(
        "in_class", "l.sqlite", {"csv": "csv", "label_studio": "json", "via2": "json", "via3": "json"}
    )


def context() -> Iterator[Entry]:
    """FOCUS's questions: two people, all formats, and back again."""
    for who, step in (("ann", 1), ("ben", 3)):
        lines = [f"{header()},category,time,weather,locations,humans"]
        for i in range(9):
            places = PLACES[i * step % 4] + (", " + PLACES[(i + 1) % 4] if i % 3 == step % 3 else "")
            told = (
                "cat" if i % 2 else "dog",
                "day" if i * step % 4 else "night",
                "sunny" if i % 3 else "none",
                f'"{places}"',
            )
            lines.append(f"p{i}.png,{','.join(told)},{'yes' if i == 4 else 'no'}")
        Path(f"{who}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        typed(
            "annotate",
            "import",
            f"{who}.csv",
            "--as",
            "csv",
            "--task",
            "context",
            "--annotator",
            who,
            "--out",
            "l.sqlite",
        )
    yield from of_csv(
        typed("annotate", "agreement", "l.sqlite", "--format", "csv"), "people/context/agreement"
    )
    kinds = {"csv": "csv", "focus": "db", "label_studio": "json", "via2": "json", "via3": "json"}
    yield from _formats("context", "l.sqlite", kinds)


def boxes() -> Iterator[Entry]:
    """Boxes of two people from COCO files."""
    for who, move in (("ann", 0), ("ben", 3)):
        held = {
            "images": [{"id": i, "file_name": f"p{i}.png", "width": 80, "height": 60} for i in range(4)],
            "annotations": [
                {
                    "id": i,
                    "image_id": i % 4,
                    "category_id": 1,
                    "bbox": [5 + i + move, 6, 20, 18 + i],
                    "area": 360,
                    "iscrowd": 0,
                }
                for i in range(6)
            ],
            "categories": [{"id": 1, "name": "object"}],
        }
        Path(f"{who}.json").write_text(json.dumps(held), encoding="utf-8")
        typed(
            "annotate",
            "import",
            f"{who}.json",
            "--as",
            BOXES,
            "--task",
            "boxes",
            "--annotator",
            who,
            "--out",
            "l.sqlite",
        )
    yield from of_csv(typed("annotate", "agreement", "l.sqlite", "--format", "csv"), "people/boxes/agreement")
    yield from _formats("boxes", "l.sqlite", {"coco": "json", "csv": "csv"})


def _formats(called: str, file: str, kinds: dict[str, str]) -> Iterator[Entry]:
    """Each export, its import into a new labelling, and the agreement that is left there."""
    for kind, ending in kinds.items():
        out = f"{called}-{kind}.{ending}"
        typed("annotate", "export", file, "--as", kind, "--out", out)
        yield from below(f"people/{called}/{kind}", _of_export(Path(out)))
        again = f"{called}-{kind}.sqlite"
        typed("annotate", "import", out, "--as", kind, "--task", called, "--out", again)
        typed("annotate", "export", again, "--as", "csv", "--out", f"{called}-{kind}-again.csv")
        yield from below(f"people/{called}/{kind}/again", of_file(Path(f"{called}-{kind}-again.csv")))


def _of_export(path: Path) -> Iterator[Entry]:
    if path.suffix != ".db":
        yield from of_file(path)
        return
    with contextlib.closing(sqlite3.connect(path)) as database:
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall():
            found = database.execute(f"SELECT * FROM {name}")
            columns = [column for column, *_ in found.description]
            yield from of_leaves([dict(zip(columns, row, strict=True)) for row in found], name)


def heads() -> Iterator[Entry]:
    """Heads learnt from composites with known places, and what they say of other images."""
    typed("context", "--out", "composites", "--limit", "14", "--drawn")
    words = ("--source", "context:composites", "--model", "lite0", "--format", "csv")
    yield from of_csv(
        typed("annotate", "heads", *words, "--out", "heads.safetensors"), "people/heads/measured"
    )
    yield from below("people/heads/file", of_file(Path("heads.safetensors")))
    images.photos("photos", 3)
    typed(
        "annotate",
        "predict",
        "--heads",
        "heads.safetensors",
        "--source",
        "folder:photos",
        "--out",
        "told.csv",
    )
    yield from below("people/heads/predicted", of_file(Path("told.csv")))


def of_run() -> Iterator[Entry]:
    """Images of a run chosen for people, and a random sample of it."""
    images.photos("photos", 4)
    shared = ("--source", "folder:photos", "--model", "lite0", "--model", "lite1", "--workers", "1")
    typed("run", "demo", *shared, "--shift", "contrast", "--shift", "jpeg", "--out", "run")
    yield from of_csv(
        typed("annotate", "select", "run", "--above", "none", "--format", "csv", "--out", "hard.csv"),
        "people/run/select",
    )
    typed("annotate", "study", "run", "--count", "5", "--out", "drawn.csv")
    for name in ("hard", "drawn"):
        yield from below(f"people/run/{name}", of_file(Path(f"{name}.csv")))
    ids = pl.read_csv("drawn.csv").get_column("image_id").to_list()
    answers = "".join(
        f"{image},{image},{word}\n" for image, word in zip(ids, itertools.cycle(CLASS), strict=False)
    )
    Path("a.csv").write_text(f"{header()},image_id,class\n" + answers, encoding="utf-8")
    typed("annotate", "import", "a.csv", "--as", "csv", "--task", "in_class", "--out", "l.sqlite")
    typed("annotate", "export", "l.sqlite", "--as", "facts", "--out", "run")
    yield from below("people/run/facts", of_table(sorites.read("run").collect()))
