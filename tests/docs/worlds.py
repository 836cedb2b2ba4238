"""The files that the examples of the docs name: images, runs, models and lists, laid into a
folder for one page at a time.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image as Pillow
from tests.conftest import CLASSES, scene
from tests.models.shapes import taught
from tests.models.test_onnx import build

import sorites
from sorites.core import Model, Outputs
from sorites.suites.suite import parse

MODULE = """
import numpy as np
def predict(images):
    means = np.stack([image.mean(axis=(0, 1)) for image in images])
    return np.column_stack([means, means.mean(axis=1)]).astype(np.float32) / 25

def detect(images):
    return [{"boxes": np.array([[4.0, 4.0, 40.0, 40.0]]), "scores": np.array([0.9]), "labels": np.array([0])} for _ in images]
"""


def photographs(folder: Path, classes: tuple[str, ...] = CLASSES, each: int = 1) -> Path:
    """Lay images in one folder per class."""
    for number, name in enumerate(classes * each):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(scene(number)).save(folder / name / f"p{number}.png")
    return folder


def guesser(name: str, certain: float) -> Model:
    """A model of the four classes that goes by the mean colour of an image, the more alike to
    another the closer ``certain``.
    """

    def forward(images: list[np.ndarray]) -> Outputs:
        means = np.stack([np.append(p.mean(axis=(0, 1)), p.std()) for p in images]).astype(np.float32)
        return Outputs(means * certain, means)

    return Model(name, forward, labels=CLASSES, version=str(certain))


def finished_run(
    out: Path, models: tuple[str, ...] = ("lite0", "lite1"), shift: str = "defocus_disk"
) -> None:
    """A finished run of models of these names on the images of PATH."""
    photographs(out.parent / "PATH", each=2)
    suite = parse({"name": "s", "shifts": [shift], "frame": {"resize": 64}, "reference": models[0]}, "test")
    made = [guesser(name, 0.02 * (i + 1)) for i, name in enumerate(models)]
    sorites.run(suite, source=f"folder:{out.parent / 'PATH'}", models=made, out=out)


def own_sources(home: Path) -> None:
    photographs(home / "PATH")
    photographs(home / "DIR", ("ood", "unknown"))
    (home / "my_module.py").write_text(MODULE)
    (home / "classes.txt").write_text("\n".join(CLASSES))
    image = next((home / "PATH").rglob("*.png"))
    (home / "data").mkdir()
    rows = {"image": [{"bytes": image.read_bytes(), "path": "p.png"}], "label": [3]}
    pl.DataFrame(rows).write_parquet(home / "data" / "one.parquet")
    for shard in range(13):
        with tarfile.open(home / f"shards-{shard:03d}.tar", "w") as tar:
            (home / "key.cls").write_text("3")
            tar.add(image, f"{shard}.png")
            tar.add(home / "key.cls", f"{shard}.cls")
    objects = {
        "images": [{"id": 1, "file_name": "p.png", "width": 80, "height": 60}],
        "categories": [{"id": 1, "name": "person"}],
    }
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 30, 30], "area": 900, "iscrowd": 0}]
    (home / "annotations.json").write_text(json.dumps({**objects, "annotations": boxes}))
    Pillow.fromarray(scene(1)).save(home / "DIR" / "p.png")


def two_runs(home: Path) -> None:
    """BASE and NEW are two models on the same images, RUN holds both; gate.toml is the example of
    the page itself.
    """
    for folder, models in (("BASE", ("base",)), ("NEW", ("new",)), ("RUN", ("lite0", "lite1"))):
        finished_run(home / folder, models)


def labelled(home: Path) -> None:
    finished_run(home / "runs" / "snow", shift="jpeg")
    rows = (
        sorites.read(home / "runs" / "snow")
        .filter(pl.col("shift") == "jpeg", pl.col("model") == "lite0")
        .collect()
    )
    rows.select("image_id").write_csv(home / "hard.csv")
    rows.select("image_id", pl.lit("class").alias("class")).head(12).write_csv(home / "known.csv")


def measured(home: Path) -> None:
    finished_run(home / "RUN")


def own_model(home: Path, names: tuple[str, ...] = ("model",)) -> None:
    """Images of one's own, and ONNX models of their classes."""
    for name in names:
        build(home / f"{name}.onnx", metadata={"labels": json.dumps(list(CLASSES))})
    photographs(home / "PATH")
    (home / "classes.txt").write_text("\n".join(CLASSES))


def own_models(home: Path) -> None:
    own_model(home, ("before", "after", "model"))
    (home / "mine.py").write_text(MODULE)
    (home / "templates.txt").write_text("a photo of a {}\na drawing of a {}\n")
    config, _, weights = taught(home, steps=1).partition("@")
    Path(config).rename(home / "tiny.json")
    Path(weights).rename(home / "weights.safetensors")


def lens_files(home: Path) -> None:
    from tests.lenses.test_trace import zmx

    (home / "triplet.zmx").write_text(zmx(8.0))
    photographs(home / "PATH")
    (home / "holiday").mkdir()
    Pillow.fromarray(scene(3)).save(home / "holiday" / "beach.jpg")


def images_only(home: Path) -> None:
    photographs(home / "PATH")


def two_trained(home: Path) -> None:
    """RUN and runs/demo hold two classifiers under two names each; plain and optics are trained for
    a step.
    """
    twice = {"lite0": "lite0", "lite1": "lite1", "before": "lite0", "after": "lite1"}
    sorites.run("demo", models=twice, shifts=["coma"], levels=[5], limit=3, out=home / "RUN")
    shutil.copytree(home / "RUN", home / "runs" / "demo")
    for name in ("plain", "optics"):
        sorites.train(
            "cifar_optics", out=home / name, steps=1, limit=64, augment="none" if name == "plain" else name
        )


def training_loop(home: Path) -> dict[str, Any]:
    """Return what a training loop has already: images with labels, a network and its normalisation."""
    import torch

    some = torch.rand(2, 3, 32, 32), torch.tensor([0, 1])
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    return {
        "loader": [some],
        "device": "cpu",
        "model": network,
        "normalise": lambda images: images * 2 - 1,
        "image": scene(1),
    }


LAID: dict[str, Callable[[Path], None]] = {
    "README.md": own_model,
    "annotate.md": labelled,
    "ci.md": two_runs,
    "lenses.md": lens_files,
    "models.md": own_models,
    "passport.md": own_models,
    "scale.md": images_only,
    "similarity.md": measured,
    "sources.md": own_sources,
    "training.md": two_trained,
}
"""The functions that write the files which a page needs, by page."""

GIVEN: dict[str, Callable[[Path], dict[str, Any]]] = {"training.md": training_loop}
"""The functions that return the names which the Python of a page uses without defining them, by page."""
