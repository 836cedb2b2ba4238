"""Small real data in the layouts of published datasets: photographs of objects, set into drawn
places, at 64 px.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from sorites import core
from sorites.core import ImageU8, Sample, camera_grid, to_float, to_uint8
from sorites.core.labels import imagenet
from sorites.core.rng import rng_for
from sorites.datasets.context import Surroundings, compose, habits
from sorites.sources.papers.focus import accepted_labels

SIDE = 64
LANDMARKS = ("animals/birds/", "food/fruit/", "hobbies/music/")


def stamps(prefix: str = "") -> list[Sample]:
    """Return the built-in cut-outs whose class has habits."""
    known = (s for s in core.source("stamps") if s.label is not None and imagenet().ids[s.label] in habits())
    return [sample for sample in known if sample.id.startswith(prefix)]


def shown(sample: Sample) -> Iterator[tuple[Surroundings, ImageU8]]:
    """Yield an object in its surroundings."""
    for around, image, _ in compose(sample, habits()[wnid(sample)], 0, (), SIDE):
        yield around, image


def wnid(sample: Sample) -> str:
    return imagenet().ids[sample.label or 0]


def write(image: ImageU8, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(image).save(path, format="PNG" if path.suffix == ".png" else "JPEG", quality=95)


def focus(root: Path) -> Path:
    """FOCUS: folders of category and query, and a database of words."""
    rows = []
    for category, classes in accepted_labels(imagenet()).items():
        for number, sample in enumerate(s for s in stamps() if s.label in classes):
            for around, image in shown(sample):
                time, weather, location = around.words
                name = f"/{category}-{location}/{number}-{len(rows)}.png"
                write(image, root / name[1:])
                rows.append((name, category, time, weather, location, "no"))
    with sqlite3.connect(root / "annotations.db") as database:
        database.execute(
            "CREATE TABLE annotations (file_name TEXT PRIMARY KEY, category, time, weather, locations,"
            " humans)"
        )
        database.executemany("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.close()
    return root


def classes(root: Path, parts: tuple[str, ...] = ("",), most: int = 6) -> Path:
    """Flowers-102 and Stanford Cars: class folders, below a folder per part; each part has objects
    of its own.
    """
    for prefix in LANDMARKS:
        for number, sample in enumerate(stamps(prefix)[: most * len(parts)]):
            for count, (_, image) in enumerate(shown(sample)):
                write(
                    image,
                    root / parts[number % len(parts)] / prefix.split("/")[1] / f"{number}-{count}.jpg",
                )
    return root


def tiny_imagenet(root: Path) -> Path:
    """Tiny-ImageNet's training part: WordNet id / images / WordNet id and number."""
    for sample in stamps("animals/birds/"):
        for count, (_, image) in enumerate(shown(sample)):
            write(image, root / "train" / wnid(sample) / "images" / f"{wnid(sample)}_{count}.JPEG")
    return root / "train"


def imagenet_es(root: Path, objects: int = 4) -> Path:
    """ImageNet-ES as the simulated camera takes it: references, and captures at all settings;
    DeepAugment's folders beside it.
    """
    camera = core.shift("camera")
    birds = {wnid(sample): sample for sample in stamps("animals/birds/")}
    parts = (("es-val", "sampled_tin_no_resize", "val"), ("es-test", "sampled_tin_no_resize2", "test"))
    for sample in list(birds.values())[:objects]:
        images = [image for _, image in shown(sample)]
        write(
            images[2],
            root
            / "ImageNet-ES/es-train/tin_no_resize_sample_removed"
            / wnid(sample)
            / "ILSVRC2012_val_00000002.JPEG",
        )
        for number, (part, references, split) in enumerate(parts):
            inside, clean = f"{wnid(sample)}/ILSVRC2012_val_{number:08d}.JPEG", images[number]
            write(clean, root / "ImageNet-ES" / part / references / inside)
            for light, lamp in camera_grid.LIGHTS.items():
                for kind, settings in (
                    ("param_control", camera_grid.manual(split, light)),
                    ("auto_exposure", camera_grid.auto(light)),
                ):
                    shots = camera.sweep(to_float(clean), settings, rng_for(0, sample.id, part))
                    for place, shot in enumerate(shots, 1):
                        write(
                            to_uint8(shot),
                            root / "ImageNet-ES" / part / kind / lamp / f"param_{place}" / inside,
                        )
            for network, distorted in (("EDSR", 255 - clean), ("CAE", np.roll(clean, 1, 2))):
                write(distorted, root / network / inside)
    return root / "ImageNet-ES"


def cns_bench(root: Path) -> Path:
    """CNS-Bench: shift / place and name of the class / seed and scale."""
    chosen = {22: "bald eagle", 130: "flamingo"}
    birds = stamps("animals/birds/")
    for place, (label, name) in enumerate(chosen.items()):
        for seed, (_, image) in enumerate(shown(birds[place]), 1):
            for scale in (0, 500, 1000, 1500, 2000, 2500):
                snowy = np.clip(image.astype(int) + scale // 25, 0, 255).astype(np.uint8)
                write(
                    snowy,
                    root / "heavy_snow" / f"{label:03d}_{name}" / f"seed_{seed:04d}_scale_{scale:04d}.jpg",
                )
    return root
