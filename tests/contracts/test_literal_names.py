"""Every reader takes names literally: ``set[1]`` is never another folder, whatever characters a
pattern would have in it.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow

import sorites
from sorites import core
from sorites.core import SOURCES, Model, Source
from sorites.core.labels import imagenet
from sorites.core.table import BOX
from sorites.datasets.build import build
from sorites.io.digests import digest_of_file, read_sealed, write_sealed
from sorites.suites.suite import Suite, parse

NAMES = ("set[1]", "set*", "set?", "set[!a]", "{1,2}", "a%20b", "a#b", "~x")
"""Names of folders; ``set1``, which the first four are as patterns, lies beside them with other contents."""

WNID = "n02123045"


def make_image(path: Path, grey: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.new("RGB", (24, 24), (grey, grey, grey)).save(path)


def folder(root: Path, grey: int) -> str:
    make_image(root / WNID / "a.png", grey)
    return f"folder:{root}"


def built(root: Path, grey: int) -> str:
    images = root.parent / f"images{grey}"
    build(Suite(name="s", source=folder(images, grey), shifts=({"name": "contrast", "levels": (1,)},)), root)
    return f"folder:{root}"


def context(root: Path, grey: int) -> str:
    built(root, grey)
    ids = pl.read_parquet(root / "sorites.parquet", glob=False)["image_id"]
    boxes = [[{"x0": 0.0, "y0": 0.0, "x1": float(grey), "y1": 9.0, "label": 1, "conf": None}]] * len(ids)
    pl.DataFrame(
        {"image_id": ids, "ground_truth": boxes}, {"image_id": pl.String, "ground_truth": pl.List(BOX)}
    ).write_parquet(root / "ground_truth.parquet")
    record = read_sealed(root / "sorites.json", "")
    listed = {"ground_truth.parquet": digest_of_file(root / "ground_truth.parquet")}
    write_sealed({**record, "files": {**record["files"], **listed}}, root / "sorites.json")
    return f"context:{root}"


def webdataset(root: Path, grey: int) -> str:
    data = io.BytesIO()
    Pillow.new("RGB", (24, 24), (grey, grey, grey)).save(data, "PNG")
    root.mkdir()
    with tarfile.open(root / "a.tar", "w") as tar:
        for name, content in (("a.png", data.getvalue()), ("a.cls", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return f"webdataset:{root}"


def parquet(root: Path, grey: int) -> str:
    data = io.BytesIO()
    Pillow.new("RGB", (24, 24), (grey, grey, grey)).save(data, "PNG")
    root.mkdir()
    pl.DataFrame({"image": [{"bytes": data.getvalue(), "path": "a.png"}], "label": [1]}).write_parquet(
        root / "a.parquet"
    )
    return f"parquet:{root}"


def cns_bench(root: Path, grey: int) -> str:
    for scale in (0, 1000):
        make_image(root / f"snow/022_eagle/seed_0001_scale_{scale:04d}.png", grey)
    return f"cns_bench:{root}"


def annotated(root: Path, grey: int) -> str:
    cns_bench(root, grey)
    image = {
        "image": "snow/022_eagle/seed_0001_scale_0000.png",
        "seed": 1,
        "scale": 0,
        "shift": "snow",
        "class": 22,
    }
    (root / "annotations_cns.json").write_text(json.dumps({"images": [image]}))
    return f"cns_bench:{root}"


def focus(kind: str) -> Callable[[Path, int], str]:
    def made(root: Path, grey: int) -> str:
        make_image(root / "1.png", grey)
        row = {
            "file_name": "/1.png",
            "category": "cat",
            "time": "night",
            "weather": "none",
            "locations": "grass",
        }
        frame = pl.DataFrame([row])
        (frame.write_csv if kind == "csv" else frame.write_parquet)(root / f"a.{kind}")
        return f"focus:{root / f'a.{kind}'}"

    return made


def is_ood(root: Path, grey: int) -> str:
    make_image(root / "imagenet1k/val/a.png", grey)
    (root / "imglist/imagenet1k").mkdir(parents=True)
    (root / "imglist/imagenet1k/test_imagenet.txt").write_text("\ufeff./val/a.png\n", encoding="utf-8")
    return f"is_ood:{root}"


def openood(root: Path, grey: int) -> str:
    make_image(root / "images_largescale/a.png", grey)
    (root / "benchmark_imglist/imagenet").mkdir(parents=True)
    (root / "benchmark_imglist/imagenet/val_imagenet.txt").write_text("\ufeffa.png 1\n", encoding="utf-8")
    return f"openood:{root},imagenet,val"


def coco(root: Path, grey: int) -> str:
    make_image(root / "a.png", grey)
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81, "iscrowd": 0}
    image = {"id": 1, "file_name": "a.png", "width": 24, "height": 24}
    content = {"images": [image], "annotations": [box], "categories": [{"id": 1, "name": "tabby"}]}
    (root / "instances.json").write_text(json.dumps(content), encoding="utf-8")
    return f"coco:{root}/instances.json"


def csv(root: Path, grey: int) -> str:
    make_image(root / "a.png", grey)
    (root / "list.csv").write_text("path,label\na.png,tabby\n", encoding="utf-8")
    return f"csv:{root}/list.csv"


def hf(root: Path, grey: int) -> str:
    make_image(root / "a.png", grey)
    (root / "metadata.jsonl").write_text('{"file_name": "a.png", "label": "tabby"}\n', encoding="utf-8")
    return f"hf:{root}"


def variants(root: Path, grey: int) -> str:
    make_image(root / "n02123045/a.png", grey)
    return f"variants:{root}?name=clean"


def yolo(root: Path, grey: int) -> str:
    make_image(root / "images/a.png", grey)
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\n", encoding="utf-8")
    (root / "data.yaml").write_text("val: images\nnames:\n  0: tabby\n", encoding="utf-8")
    return f"yolo:{root}"


READERS: dict[str, Callable[[Path, int], str]] = {
    "folder": folder, "built": built, "context": context, "webdataset": webdataset, "cns_bench": cns_bench,
    "annotated": annotated,
    "focus csv": focus("csv"), "focus parquet": focus("parquet"), "is_ood": is_ood,
    "openood": openood,
    "coco": coco, "csv": csv, "hf": hf, "variants": variants, "yolo": yolo, "parquet": parquet,
}  # fmt: skip


def grey_of(source: Source) -> int:
    ground_truth = [
        int(box.xyxy[2]) for sample in source for box in sample.ground_truth or () if box.xyxy[2] > 24
    ]
    return (
        ground_truth[0]
        if ground_truth
        else int(np.median([sample.load().mean() for sample in source if sample.shift == "clean"]))
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reader", READERS)
def test_a_source_reads_the_folder_of_that_name(reader: str, name: str, tmp_path: Path) -> None:
    for other in ("set1", "seta", "1"):
        READERS[reader](tmp_path / other, 200)
        shutil.rmtree(tmp_path / "images200", ignore_errors=True)
    spec = READERS[reader](tmp_path / name, 90)
    assert grey_of(core.source(spec, imagenet())) == 90


def test_every_source_that_takes_a_path_is_read_here() -> None:
    assert {name.split()[0] for name in READERS} - {"built", "annotated"} == set(SOURCES.names()) - {
        "cifar", "edited", "imagenet_es", "imagenet_es_diverse", "maite", "nuimages", "python", "raw", "slider", "stamps", "stamps_ood", "foolbox",
        "composites",
    }, "cifar takes one file, imagenet_es and nuimages many, raw RAW files, slider and edited a pipeline: tests/sources has them"  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES[:2], *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[2:4])])
def test_a_run_folder_is_the_one_of_that_name(
    name: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    suite = parse(
        {"name": "s", "shifts": [{"name": "contrast", "levels": [1]}], "frame": {"resize": 40}}, "test"
    )
    rows = {}
    for number, out in enumerate(("set1", "seta", name), start=1):
        sorites.run(suite, source=f"folder:{photos}", models=[tiny()], out=tmp_path / out, limit=number)
        sorites.similarity(tmp_path / out, ["psnr"])
        rows[out] = sorites.read(tmp_path / out).collect()
    assert [frame["sample_id"].n_unique() for frame in rows.values()] == [1, 2, 3]
    assert rows[name]["degrees"].drop_nulls().len() == 3
    again = sorites.run(suite, source=f"folder:{photos}", models=[tiny()], out=tmp_path / name, limit=3)
    assert again.collect().height == rows[name].height
    sorites.report(tmp_path / name, tmp_path / "report.html")
