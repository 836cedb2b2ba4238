"""The same table by other ways: other engines, a run that lost shards, merged files; and what verbs
add to a run afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import sorites
from tools.net import images
from tools.net.hashes import (
    Entry,
    of_csv,
    of_file,
    of_folder,
    of_leaves,
    of_plain,
    of_report,
    of_table,
    without_ids,
)
from tools.net.home import Task, below, typed, typed_apart

MODEL = """
import numpy as np

def logits(images):
    rows = np.stack([np.r_[p.mean((0, 1)), p.std((0, 1))] for p in images]).astype(np.float32) / 64
    return np.tile(rows, (1, 167))[:, :1000] * 3 + np.sin(np.arange(1000, dtype=np.float32)), rows
"""
SUITE = """
source = "folder:photos"
models = ["python:net_colours:logits"]
shifts = ["gaussian_noise", { name = "contrast", levels = [1, 4] }]
scorers = ["msp", "knn(k=3)"]
refine = 0.2
frame = { resize = 48 }
[fit]
source = "folder:photos"
"""
ENCODER = """
import numpy as np

class Colours:
    version = "1"
    def images(self, images):
        return np.array([np.concatenate([p.mean((0, 1)), p.std((0, 1)) + 1]) for p in images])
    def texts(self, sentences):
        return np.array([[len(s), 3, 2, 1, s.count("a"), 5] for s in sentences])
"""
CNS = "image,gt,prediction,arch,shift,severity\n"
ENGINES = ("local", "processes", "ray")


def tasks() -> list[Task]:
    engines = [Task((f"engines/{name}",), _engine(name)) for name in ENGINES]
    return [
        *engines,
        Task(("continued",), continued),
        Task(("filtered", "words/filtered"), filtered),
        Task(("imported", "reports/imported", "words/runs/imported", "words/imported"), imported),
        Task(("planned", "words/planned"), planned),
    ]


def prepare() -> None:
    images.photos("photos", 5)
    Path("net_colours.py").write_text(MODEL, encoding="utf-8")
    Path("net_encoder.py").write_text(ENCODER, encoding="utf-8")
    Path("small.toml").write_text(SUITE, encoding="utf-8")


def _engine(name: str):  # type: ignore[no-untyped-def]
    def make() -> Iterator[Entry]:
        prepare()
        typed_apart("run", "small.toml", "--out", "run", "--engine", name, "--workers", "2", "--batch", "3")
        yield from below(f"engines/{name}", of_table(sorites.read("run").collect()))

    return make


def continued() -> Iterator[Entry]:
    """A run that lost every second shard and goes on, its features, its merged files, and its manifest."""
    prepare()
    words = ("run", "small.toml", "--out", "run", "--workers", "1", "--batch", "2", "--keep-features")
    typed(*words)
    whole = sorites.read("run").collect()
    shards = sorted(Path("run", "predictions").rglob("*.parquet"))
    yield "continued/shards", of_plain(len(shards))
    for path in shards[::2]:
        path.unlink()
    typed(*words)
    yield from below("continued/again", of_table(sorites.read("run").collect()))
    yield from below("continued/whole", of_table(whole))
    for distance in ("cosine", "euclidean"):
        yield from of_csv(
            typed("features", "run", "--distance", distance, "--format", "csv"),
            f"continued/features/{distance}",
        )
    typed("compact", "run")
    yield "continued/merged", of_plain(len(list(Path("run", "predictions").rglob("*.parquet"))))
    yield from below("continued/compact", of_table(sorites.read("run").collect()))
    yield from below("continued/manifest", of_file(Path("run", "manifest.parquet")))
    typed("sheet", "run", "--out", "sheet.png")
    yield from below("words/continued/sheet", of_file(Path("sheet.png")))


def filtered() -> Iterator[Entry]:
    """Similarities of a run's images to their class, by thresholds as published and as calibrated
    on labels by hand.
    """
    prepare()
    typed("run", "small.toml", "--out", "run", "--workers", "1", "--limit", "3")
    encoders = ("--encoder", "python:net_encoder:Colours", "--second", "python:net_encoder:Colours")
    said = typed(
        "filter",
        "run",
        *encoders,
        "--shift-text",
        "contrast=in fog",
        "--shift-text",
        "gaussian_noise=in rain",
    )
    yield "words/filtered/published", of_plain(without_ids(said))
    yield from below("filtered/published", of_folder(Path("run", "facts"), "sorites.json"))
    held = pl.read_parquet("run/facts/out_of_class.parquet")
    ids = held.get_column(held.columns[0]).to_list()
    Path("labels.csv").write_text(
        "image_id,outside\n" + "".join(f"{i},{n % 3 == 0}\n" for n, i in enumerate(ids))
    )
    for rule in ("paper", "code", "text"):
        words = ("--thresholds", "calibrated", "--annotations", "labels.csv", "--rule", rule)
        yield f"words/filtered/{rule}", of_plain(typed("filter", "run", *words))
        yield from below(f"filtered/{rule}", of_folder(Path("run", "facts"), "sorites.json"))
    yield from below("filtered/table", of_table(sorites.read("run").collect()))


def imported() -> Iterator[Entry]:
    """Predictions as CSV, and counts of right answers."""
    rows = "".join(f"s{i},281,{281 if i >= s else 1},m,fog,{s}\n" for i in range(4) for s in range(3))
    Path("p.csv").write_text(CNS + rows, encoding="utf-8")
    Path("c.csv").write_text("light,param,n,correct\non,1,10,3\noff,1,10,4\n", encoding="utf-8")
    Path("alexnet.csv").write_text("shift,severity,error\nfog,0,0.25\nfog,1,0.5\nfog,2,1\n", encoding="utf-8")
    yield (
        "words/imported/csv",
        of_plain(typed("import", "p.csv", "--as", "csv", "--reference", "alexnet.csv", "--out", "rows")),
    )
    yield (
        "words/imported/counts",
        of_plain(typed("import", "c.csv", "--as", "counts", "--model", "m", "--out", "counts")),
    )
    for name in ("rows", "counts"):
        yield from below(f"imported/{name}", of_table(sorites.read(name).collect()))
    for metric in ("accuracy", "failure_severity", "relative_corruption_error"):
        yield from of_csv(typed("metrics", "rows", metric, "--format", "csv"), f"imported/metrics/{metric}")
    yield "words/imported/check", of_plain(without_ids(typed("check", "rows")))
    yield from of_report(sorites.report("rows", "page.html"), "imported")


def planned() -> Iterator[Entry]:
    """What runs will take, and the words that a search would be asked."""
    for suite in ("demo", "optics_bench", "camera"):
        yield from of_leaves(
            json.loads(typed("plan", suite, "--limit", "4", "--workers", "1", "--format", "json")),
            f"planned/{suite}",
        )
    yield "planned/queries", of_plain(typed("collect", "--plan", "focus", "--dry-run"))
    yield "words/planned/cite", of_plain(typed("cite", "demo"))
