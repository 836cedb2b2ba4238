"""What every source owes, built in or plugged in. One that needs a path is given one here, or has to say so."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.pipeline.fading import CLASSES, fading

from sorites import core
from sorites.core import SOURCES, Sample, Source, to_image
from sorites.errors import SoritesError
from sorites.labels import imagenet, labels
from sorites.pipeline import plan
from sorites.suite import Suite

SLOW = {"stamps", "cifar", "composites", "slider"}
LABELS: dict[str, str | tuple[str, ...]] = {
    "cifar": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "slider": ("disc", "square", "triangle", "cross"),
    **dict.fromkeys(("composites", "coco", "yolo"), "coco"),
}


def _tar(folder: Path) -> str:
    with tarfile.open(folder / "a-000.tar", "w") as tar:
        for i in range(5):
            picture = io.BytesIO()
            Pillow.fromarray(np.full((20, 30, 3), 40 * i, np.uint8)).save(picture, "PNG")
            for name, data in ((f"{i:04d}.png", picture.getvalue()), (f"{i:04d}.cls", str(i).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return f"webdataset:{folder / 'a-000.tar'}"


def _trajectory(folder: Path) -> str:
    (folder / "heavy_snow" / "022_bald eagle").mkdir(parents=True)
    for scale in (0, 500, 1000):
        Pillow.new("RGB", (20, 20), (scale // 5, 90, 90)).save(
            folder / f"heavy_snow/022_bald eagle/seed_0001_scale_{scale:04d}.jpg"
        )
    return f"cns_bench:{folder}"


def _annotated(folder: Path) -> str:
    Pillow.new("RGB", (20, 20), (90, 90, 90)).save(folder / "1.png")
    (folder / "a.csv").write_text('file_name,category,time,weather,locations\n/1.png,cat,night,none,"grass, snow"\n')
    return f"focus:{folder / 'a.csv'}"


def _boxes(folder: Path) -> str:
    for name in ("images/1.png", "labels/1.txt", "data.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
    Pillow.new("RGB", (20, 20), (90, 90, 90)).save(folder / "images/1.png")
    (folder / "labels/1.txt").write_text("0 0.5 0.5 0.2 0.4\n")
    (folder / "data.yaml").write_text("names: [cat]\n")
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 6, 4, 8]}
    data = {"images": [{"id": 1, "file_name": "images/1.png"}], "annotations": [row], "categories": [{"id": 1, "name": "cat"}]}
    (folder / "a.json").write_text(json.dumps(data))
    return str(folder)


def _parquet(folder: Path) -> str:
    """Two pictures in the layout of the Hugging Face hub."""
    data = io.BytesIO()
    Pillow.new("RGB", (30, 20), (90, 80, 70)).save(data, "PNG")
    images = [{"bytes": data.getvalue(), "path": f"{i}.png"} for i in range(2)]
    pl.DataFrame({"image": images, "label": [3, 7]}).write_parquet(folder / "train-00000-of-00001.parquet")
    return f"parquet:{folder}/*.parquet"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SOURCES.names()])
def read(request: pytest.FixtureRequest, photos: Path, tmp_path: Path) -> Callable[[], Source]:
    name = request.param
    given = {
        "folder": lambda: f"folder:{photos}",
        "webdataset": lambda: _tar(tmp_path),
        "parquet": lambda: _parquet(tmp_path),
        "cns_bench": lambda: _trajectory(tmp_path),
        "focus": lambda: _annotated(tmp_path),
        "coco": lambda: f"coco:{_boxes(tmp_path)}/a.json",
        "yolo": lambda: f"yolo:{_boxes(tmp_path)}",
    }
    spec = given[name]() if name in given else name
    space = labels(LABELS.get(name, "imagenet"))
    try:
        core.source(spec, space)
    except SoritesError as error:
        if "Type:" not in str(error):
            raise
        pytest.skip(str(error))
    return lambda: core.source(spec, space)


def test_every_sample_decodes_to_a_picture(read: Callable[[], Source]) -> None:
    for sample in read().samples[:20]:
        picture = sample.load()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        if sample.alpha is not None:
            assert sample.alpha().shape == picture.shape[:2]


def test_loading_again_gives_the_same_and_its_own_picture(read: Callable[[], Source]) -> None:
    for sample in read().samples[:5]:
        first, second = sample.load(), sample.load()
        np.testing.assert_array_equal(first, second)
        assert first.flags.writeable is False or not np.shares_memory(first, second)


def test_the_same_samples_in_the_same_order_every_time(read: Callable[[], Source]) -> None:
    def told(source: Source) -> list[tuple[object, ...]]:
        return [(s.id, s.label, s.accept, s.shift, s.setting.canonical, s.split, s.attrs) for s in source]

    assert told(read()) == told(read())
    assert len(read()) > 0


def test_ids_are_text_and_unique(read: Callable[[], Source]) -> None:
    ids = [(s.id, s.shift, s.setting.canonical) for s in read()]
    assert len(set(ids)) == len(ids)
    for id_, _, _ in ids:
        assert id_
        assert id_.encode("utf-8").decode("utf-8") == id_
        assert not Path(id_).is_absolute(), "an id must be the same on another machine"


def test_labels_are_in_the_label_space(read: Callable[[], Source]) -> None:
    space = range(len(imagenet()))
    for sample in read():
        assert sample.label is None or sample.label in space
        assert all(label in space for label in sample.right)


def test_it_can_be_planned(read: Callable[[], Source]) -> None:
    made = plan.make(Suite(name="s"), read())
    assert made.images() == len(read()) + sum(len(dial.levels) for sample in read() for dial in sample.dials)


def _owes(sample: Sample) -> None:
    """Check what a sample that has dials of its own owes: images that do not depend on what else is asked, or in which order."""
    for dial in sample.dials:
        levels = dial.levels[:3]
        images = list(dial.sweep(levels))
        assert len(images) == len(levels)
        for image in images:
            assert image.dtype == np.float32
            assert image.shape[2:] == (3,)
            assert float(image.min()) >= -1e-3
            assert float(image.max()) <= 1 + 1e-3
        for image, again in zip(images, reversed(list(dial.sweep(levels[::-1]))), strict=True):
            np.testing.assert_allclose(image, again, atol=1e-4)
        (alone,) = dial.sweep(levels[-1:])
        np.testing.assert_allclose(images[-1], alone, atol=1e-4)
        assert images[0].shape == sample.load().shape


def test_dials_of_samples_own_give_an_image_for_a_severity_alone(read: Callable[[], Source]) -> None:
    for sample in read().samples[:2]:
        _owes(sample)


def test_a_source_with_such_dials_is_held_to_it() -> None:
    sample = next(fading("1", labels(CLASSES)))
    _owes(sample)
    for wrong in (
        lambda severities: iter([]),
        lambda severities: (to_image(sample.load()) * i for i, _ in enumerate(severities)),
    ):
        with pytest.raises((AssertionError, ValueError)):
            _owes(replace(sample, dials=(replace(sample.dials[0], sweep=wrong),)))
