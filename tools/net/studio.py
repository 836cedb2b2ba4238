"""The virtual studio: images photographed from a screen under lamps, straightened, judged, and
settings chosen by a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import sorites
from tools.net import images
from tools.net.hashes import Entry, of_csv, of_folder, of_table
from tools.net.home import Task, below, typed


def tasks() -> list[Task]:
    return [Task(("studio",), captured)]


def captured() -> Iterator[Entry]:
    """A capture of two images, its run, and the comparison of policies on its photographs."""
    for i in range(2):
        images.save(Path("photos", images.CLASSES[1 + i], f"p{i}.png"), images.scene(i, 120, 160))
    words = (
        "--source",
        "folder:photos",
        "--grid",
        "small",
        "--megapixels",
        "0.06",
        "--settle",
        "0",
        "--originals",
        "drop",
    )
    typed("studio", "capture", *words, "--out", "es")
    for part, digest in of_folder(Path("es"), "sorites.json"):
        if part.rpartition(".")[2] in ("png", "jpg", "JPEG", "jpeg"):
            yield f"studio/photographs/{part}", digest
    yield "studio/files", sorted(path.name for path in Path("es").iterdir())
    judged = sorites.run("imagenet_es", source="imagenet_es:es", models=["lite0"], out="run", workers=1)
    yield from below("studio/run", of_table(judged.collect()))
    asked = (
        "--captured",
        "es",
        "--source",
        "folder:photos",
        "--grid",
        "small",
        "--out",
        "control",
        "--format",
        "csv",
    )
    yield from of_csv(typed("studio", "control", *asked), "studio/control")
