"""A small run of every embedded suite, and of what suites leave out: its table, metrics and report."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sorites
from sorites.core import SCORERS
from tools.net import boxes, images
from tools.net.encoders import open_clip
from tools.net.hashes import Entry, of_file, of_folder, of_leaves, of_plain, of_report, of_table, without_ids
from tools.net.home import Task, changed_suite, typed
from tools.net.metrics import answers
from tools.net.scorers import looks
from tools.net.sources import composites, nothing

LITE = {"models": ["lite0"]}
OUT = "run"


@dataclass(frozen=True)
class Case:
    """A suite, perhaps with changes, what is asked of it, what must stand in the folder before, and
    what is typed after it.
    """

    suite: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[], None] = nothing
    after: tuple[tuple[str, ...], ...] = ()


def photos() -> None:
    """Images to be judged, one of them broken, and others to be fitted on."""
    images.photos("photos", 6, broken=True)
    images.photos("training", 24, first=20)


BOXES = {"source": "coco:coco.json,images=coco", "models": ["python:finds_coco:detect"]}
FEW = {"knn": "knn(k=5)", "nnguide": "nnguide(k=5)", "vim": "vim(dim=5)"}
"""Scorers whose defaults want more training images than are given here, with other parameters."""
FITTED = ("msp", "knn(k=3)", "react")
OWN = {"source": "folder:photos", **LITE}
MEASURED = ("psnr", "ssim", "lpips", "lpips_linear", "haze_depth", "exposure_error", "clipped_share")
MEASURES = [word for name in MEASURED for word in ("--measure", name)]
ENCODER = (
    "--against",
    "folder:training",
    "--encoder",
    "cifar:1000",
    "--k",
    "2",
    "--limit",
    "12",
    "--levels",
    "3",
)
SMALL = {
    "limit": 3,
    "models": ["cifar6:100"],
    "scorers": [FEW.get(name, name) for name in SCORERS.names()],
    "fit": {"limit": 60},
    "distance": {"encoder": "cifar:1000", "limit": 150},
}
"""The demonstration of OOD score with fewer images to learn from: whole, it takes twelve minutes."""


ZERO_SHOT = "open_clip:tiny-clip.json@weights.safetensors"


def zero_shot() -> None:
    """An image-text model as a classifier, and classes of one's own."""
    images.fruit("photos")
    open_clip()


def later() -> tuple[str, ...]:
    """Every scorer that kept features can answer and that the run did not have; not those that want
    each class twice.
    """
    plain = [name for name in SCORERS.names() if not looks(name) and name not in (*FITTED, "mds", "rmds")]
    return tuple(word for name in plain for word in ("--scorer", FEW.get(name, name)))


CASES: Mapping[str, Case] = {
    "demo": Case("demo", {"limit": 2}),
    "optics_bench": Case("optics_bench", {"limit": 2, **LITE}),
    "lens_corruptions": Case("lens_corruptions", {"limit": 1, **LITE}),
    "tolerances": Case("tolerances", {"limit": 2, **LITE}),
    "camera": Case("camera", {"limit": 1, **LITE}),
    "imagenet_es": Case(
        "imagenet_es",
        {"source": "imagenet_es:es/es-test", **LITE},
        before=functools.partial(images.imagenet_es, "es"),
    ),
    "cns_bench": Case(
        "cns_bench", {"source": "cns_bench:cns"}, before=functools.partial(images.cns_bench, "cns")
    ),
    "focus": Case("focus", {"source": "focus:focus"}, before=functools.partial(images.focus, "focus")),
    "context": Case("context", {"source": "context:composites", **LITE}, before=composites),
    "is_ood": Case("is_ood", {"source": "is_ood:lists"}, before=functools.partial(images.is_ood, "lists")),
    "is_ood_demo": Case("is_ood_demo", changes=SMALL),
    "stamps_ood": Case("stamps_ood", {"limit": 8}),
    "digital": Case("digital", {"limit": 1}),
    "noise": Case("noise", {"limit": 1}),
    "exposure": Case("exposure", {"limit": 1}),
    "weather": Case("weather", {"limit": 1}),
    "cifar_optics": Case("cifar_optics", {"limit": 3, "models": ["cifar6:100"]}),
    "cifar_common": Case("cifar_common", {"limit": 3, "models": ["cifar6:100"]}),
    "slider_demo": Case("slider_demo", {"limit": 1}),
    "zero_shot": Case(
        "demo",
        {
            "source": "folder:photos",
            "labels": "photos.txt",
            "models": [ZERO_SHOT],
            "shifts": ["jpeg"],
            "levels": [1],
        },
        before=zero_shot,
    ),
    "by_diffusion": Case("slider_demo", {"limit": 1, "models": ["diffusion:toy?draws=4&first=2"]}),
    "picodet": Case("boxes_demo", {"limit": 1, "shifts": ["coma"], "levels": [1]}),
    "boxes_demo": Case(
        "boxes_demo",
        {"limit": 2, "models": ["python:finds_coco:detect"]},
        before=functools.partial(boxes.coco, "coco"),
    ),
    "lens_corruptions_boxes": Case(
        "lens_corruptions_boxes", {**BOXES, "limit": 1}, before=functools.partial(boxes.coco, "coco")
    ),
    "optics_bench_boxes": Case(
        "optics_bench_boxes", {**BOXES, "refine": 0.2}, before=functools.partial(boxes.coco, "coco")
    ),
    "nuimages_optics": Case(
        "nuimages_optics",
        {"source": "nuimages:nu", "models": ["python:finds_nu:detect"]},
        before=functools.partial(boxes.nuimages, "nu"),
    ),
    "refined": Case(
        "demo", {"limit": 5, "shifts": ["contrast", "gaussian_noise"], "refine": 0.02, "seed": 3, **LITE}
    ),
    "between": Case(
        "optics_bench",
        {"limit": 2, "shifts": ["coma"], "severities": [0.5, 2.5], "options": {"colours": "rg"}, **LITE},
    ),
    "scored": Case(
        "demo",
        {
            **OWN,
            "shifts": ["jpeg"],
            "levels": [1, 5],
            "scorers": FITTED,
            "fit": "stamps",
            "keep_features": True,
        },
        before=photos,
        after=(("score", OUT, *later()),),
    ),
    "measured": Case(
        "demo",
        {**OWN, "shifts": ["contrast", "iso_noise"], "levels": [2, 4]},
        before=photos,
        after=(("similarity", OUT, *MEASURES, "--lpips-below", "0.5"), ("distance", OUT, *ENCODER)),
    ),
}


def tasks() -> list[Task]:
    return [
        Task(
            (f"runs/{name}", f"metrics/{name}", f"reports/{name}", f"words/runs/{name}"),
            functools.partial(digests, name),
        )
        for name in CASES
    ]


def digests(name: str) -> Iterator[Entry]:
    case = CASES[name]
    case.before()
    sorites.run(
        changed_suite(case.suite, case.changes) if case.changes else case.suite,
        out=OUT,
        workers=1,
        **case.asked,
    )
    for words in case.after:
        yield f"words/runs/{name}/{words[0]}", of_plain(typed(*words))
    table = sorites.read(OUT).collect()
    yield from ((f"runs/{name}/{part}", digest) for part, digest in of_table(table))
    yield f"words/runs/{name}/errors", of_plain(sorted(table["error"].drop_nulls()))
    yield from (
        (f"runs/{name}/manifest/{part}", digest) for part, digest in of_file(Path(OUT, "manifest.parquet"))
    )
    yield from ((f"runs/{name}/info/{part}", digest) for part, digest in of_info(Path(OUT, "run.json")))
    for part in ("features", "fits", "heads"):
        yield from ((f"runs/{name}/{part}/{file}", digest) for file, digest in of_folder(Path(OUT, part)))
    yield from answers(table, f"metrics/{name}")
    yield f"words/runs/{name}/check", of_plain(without_ids(typed("check", OUT)))
    typed("report", OUT, "--out", "report.html")
    yield from of_report(Path("report.html"), name)


def of_info(path: Path) -> Iterator[Entry]:
    """What the run's numbers follow from; not the suite itself, whose keys may be spelled anew, nor
    versions of libraries.
    """
    held = json.loads(path.read_text(encoding="utf-8"))
    yield "(keys)", sorted(held)
    yield "suite/(keys)", sorted(held.get("suite", {}))
    for key in ("labels", "settings", "shifts", "models", "parameters", "fit", "scored"):
        if key in held:
            yield from of_leaves(held[key], key)
