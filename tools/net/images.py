"""Images made from numbers alone, and small folders of them in the layouts in which datasets are
published.
"""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from sorites.core import ImageU8

SIZES = {"odd": (97, 133), "square": (224, 224), "portrait": (384, 288)}
"""Height and width of the three images that shifts and models are shown."""
CLASSES = ("n01440764", "n01443537", "n01629819", "n02123045")
"""Tench, goldfish, salamander and tabby; the second and the third are of Tiny-ImageNet too."""


def scene(seed: int, height: int = 60, width: int = 80) -> ImageU8:
    """An image with smooth ground, waves, an edge, grain, pure black and pure white: something for
    every shift to act on.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.sin(rng.uniform(2, 40) * x + rng.uniform(2, 40) * y + rng.uniform(0, 6)) for _ in range(3)]
    ground = np.stack(waves, axis=-1) * 50 + rng.uniform(60, 190, 3) + 80 * (x + y - 0.8)[..., None]
    disk = (x - rng.uniform(0.2, 0.8)) ** 2 + (y - rng.uniform(0.2, 0.6)) ** 2 < 0.03
    ground[disk] = rng.uniform(0, 255, 3)
    ground += rng.normal(0, 6, ground.shape)
    ground[: height // 8, : width // 8], ground[-height // 8 :, -width // 8 :] = 0, 255
    made: ImageU8 = np.clip(ground, 0, 255).astype(np.uint8)
    return made


def three() -> dict[str, ImageU8]:
    return {name: scene(i, *size) for i, (name, size) in enumerate(SIZES.items(), start=1)}


def save(path: Path, image: ImageU8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(image).save(path)


def photos(root: str, count: int, first: int = 0, broken: bool = False) -> None:
    """Images in class folders, each of another size; with ``broken``, one more that cannot be read."""
    for i in range(first, first + count):
        save(Path(root, CLASSES[i % len(CLASSES)], f"p{i:02d}.png"), scene(i, 120 + 3 * i, 160))
    if broken:
        Path(root, CLASSES[0], "broken.png").write_bytes(b"no image")


def fruit(root: str, first: int = 0) -> None:
    """Classes of one's own, two images each, and beside the folder a text file that names them."""
    names = ("apple", "pear", "plum")
    for i in range(2 * len(names)):
        save(Path(root, names[i % len(names)], f"{i}.png"), scene(first + i))
    Path(f"{root}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def loose(root: str) -> None:
    """Class folders by number and by name, and images beside them with and without a WordNet id
    in their names.
    """
    for i, name in enumerate(
        ("281_tabby/a.png", "goldfish/b.jpg", "1/deeper/c.png", "n02123045_d.JPEG", "nobody.png")
    ):
        save(Path(root, name), scene(i))


def shards(root: str, count: int = 4) -> None:
    """A WebDataset tar, labels in each of the three ways."""
    Path(root).mkdir()
    with tarfile.open(Path(root, "a-000.tar"), "w") as archive:
        for i in range(count):
            buffer = io.BytesIO()
            Pillow.fromarray(scene(i)).save(buffer, "PNG")
            ways = (("cls", CLASSES[i]), ("json", json.dumps({"label": i})), ("txt", "tabby"))
            way, text = ways[i % len(ways)]
            for kind, data in (("png", buffer.getvalue()), (way, text.encode())):
                member = tarfile.TarInfo(f"p{i}.{kind}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def parquet(root: str, count: int = 4) -> None:
    """A parquet file with a column of images, as Hugging Face has them."""
    import polars as pl

    rows = []
    for i in range(count):
        buffer = io.BytesIO()
        Pillow.fromarray(scene(i)).save(buffer, "PNG")
        rows.append({"image": {"bytes": buffer.getvalue(), "path": None}, "label": CLASSES[i % len(CLASSES)]})
    Path(root).mkdir()
    pl.DataFrame(rows).write_parquet(Path(root, "a.parquet"))


def imagenet_es(root: str) -> None:
    """The test part of ImageNet-ES: references, 27 manual settings and five automatic shots, lamp
    on and off.
    """
    part = Path(root, "es-test")
    shots = [f"param_control/{lamp}/param_{k}" for lamp in ("l1", "l5") for k in range(1, 28)]
    shots += [f"auto_exposure/{lamp}/param_{k}" for lamp in ("l1", "l5") for k in range(1, 6)]
    for shade, shot in enumerate(["sampled_tin_no_resize2", *shots]):
        for i, wnid in enumerate(CLASSES[1:3]):
            image = scene(i, 40, 48)
            dimmed = image if not shade else (image * (0.2 + 0.8 * shade / len(shots))).astype(np.uint8)
            save(part / shot / wnid / f"ILSVRC2012_val_{20 + i:08d}.JPEG", dimmed)


def imagenet_es_diverse(root: str) -> None:
    """ImageNet-ES-Diverse: references, and six environments with 27 manual settings and five automatic shots."""
    part = Path(root, "es-diverse-test")
    shots = [
        f"{kind}/{light}/param_{k}"
        for light in ("l1", "l2", "l3", "l4", "l6", "l7")
        for kind, last in (("param_control", 27), ("auto_exposure", 5))
        for k in range(1, last + 1)
    ]
    for shade, shot in enumerate(["sampled_tin_no_resize2", *shots]):
        for i, wnid in enumerate(CLASSES[1:3]):
            dimmed = scene(i, 16, 20) * (1 if not shade else 0.2 + 0.8 * shade / len(shots))
            save(part / shot / wnid / f"ILSVRC2012_val_{20 + i:08d}.JPEG", dimmed.astype(np.uint8))


def cns_bench(root: str) -> None:
    """Two shifts of two classes at six scales."""
    for shift in ("heavy_snow", "painting_style"):
        for folder, seed in (("022_bald eagle", 34), ("950_orange", 7)):
            for scale in range(0, 3000, 500):
                paler = scene(seed, 64, 64) // 2 + scale // 25
                save(
                    Path(root, shift, folder, f"seed_{seed:04d}_scale_{scale:04d}.jpg"),
                    paler.astype(np.uint8),
                )


def cns_listed(root: str) -> None:
    """The same with the published list of those that count, of which one trajectory lacks a scale."""
    cns_bench(root)
    images = [
        {
            "image": f"heavy_snow/{folder}/seed_{seed:04d}_scale_{scale:04d}.jpg",
            "seed": seed,
            "scale": scale / 1000,
        }
        | {"shift": "heavy_snow", "class": int(folder[:3])}
        for folder, seed, scales in (
            ("022_bald eagle", 34, range(0, 3000, 500)),
            ("950_orange", 7, (0, 500, 2000)),
        )
        for scale in scales
    ]
    Path(root, "annotations_cns.json").write_text(
        json.dumps({"info": {}, "images": images}), encoding="utf-8"
    )


FOCUS = (
    ("/cat-night/86.jpeg", "cat", "night", "none", "grass, street", "no"),
    ("/car-snow/3.jpg", "truck", "day", "snowing", "snow", "yes"),
    ("/bird/1.jpg", "bird", "day", "partly cloudy", "grass, rocks", "no"),
    ("/frog/9.jpg", "frog", "night", "sunny", "none", "no"),
    ("/dog/2.jpg", "dog", "day", "sunny", "water, sand", "no"),
)


def focus(root: str, rows: Sequence[tuple[str, ...]] = FOCUS) -> None:
    """Five images and their annotations."""
    for i, (file, *_) in enumerate(rows):
        save(Path(root, file.lstrip("/")), scene(i))
    with closing(sqlite3.connect(Path(root, "annotations.db"))) as db:
        db.execute(
            "CREATE TABLE annotations(file_name TEXT PRIMARY KEY, category, time, weather, locations, humans)"
        )
        db.executemany("INSERT INTO annotations VALUES (?, ?, ?, ?, ?, ?)", rows)
        db.commit()


OPENOOD: Mapping[str, Sequence[str]] = {
    "cifar10/test_cifar10.txt": [f"cifar10/test/{i % 10}/{i}.png {i % 10}" for i in range(20)],
    "cifar10/train_cifar10.txt": [f"cifar10/train/{i % 10}/{i}.png {i % 10}" for i in range(20)],
    "cifar10/val_cifar10.txt": [f"cifar10/val/{i}.png {i % 10}" for i in range(10)],
    "cifar10/val_tin.txt": [f"tin/val/{i}.png -1" for i in range(5)],
    "cifar10/test_cifar10c.txt": [f"cifar10c/{i}.png {i % 10}" for i in range(10)],
    **{
        f"cifar10/test_{name}.txt": [f"{name}/test/{i}.png -1" for i in range(7 + number)]
        for number, name in enumerate(("cifar100", "tin", "mnist", "svhn", "texture", "places365"))
    },
}


def openood(root: str) -> None:
    """The lists of OpenOOD's CIFAR-10 benchmark, each of a few lines, their images, and one that is not listed."""
    for number, (name, lines) in enumerate(OPENOOD.items()):
        listed = Path(root, "benchmark_imglist", name)
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for i, line in enumerate(lines):
            save(Path(root, "images_classic", line.rpartition(" ")[0]), scene(100 * number + i))
    save(Path(root, "images_classic", "tin/test/filtered.png"), scene(1))


VAL = ("ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002", "ILSVRC2012_val_00000003")
IS_OOD: Mapping[str, Sequence[str]] = {
    "imagenet1k/test_imagenet.txt": [f"./val/{name}.JPEG" for name in VAL],
    "imagenet21k/train/cov_0_sem_7.txt": ["./imagenet21k_train/n01323261/n01323261_1932.JPEG"],
    "imagenet21k/val/cov_0_sem_7.txt": ["./imagenet21k_val/n01440764/n01440764_1.JPEG"],
    "imagenet21k/val/cov_5_sem_1.txt": [f"./imagenet21k_val/n01323261/n01323261_{i}.JPEG" for i in range(5)],
    "SynIS/cov_2_sem_3.txt": ["./cov_2_sem_3/1076_5135_33.png"],
}


def is_ood(root: str) -> None:
    """The published lists, each of a few lines, and their images."""
    for name, lines in IS_OOD.items():
        listed = Path(root, "imglist", name)
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for i, line in enumerate(lines):
            save(Path(root, name.split("/")[0], line), scene(i))
    rows = "ImageId,PredictionString\n" + "".join(f"{name},n01440764 1 2 3 4\n" for name in VAL)
    Path(root, "imagenet1k", "LOC_val_solution.csv").write_text(rows, encoding="utf-8")
