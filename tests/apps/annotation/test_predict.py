"""Attributes told of a run become facts that metrics ask, by heads or by an encoder's texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.apps.annotation.worlds import drawn, seeing, world
from tests.conftest import CLASSES

import sorites
from sorites.apps.annotation.common_words import Commonness
from sorites.apps.annotation.heads import fit_heads
from sorites.apps.annotation.predict import (
    ImageQuery,
    ReferenceTexts,
    by_heads,
    by_texts,
    predict_run,
    predict_source,
    read_texts,
    reference_texts,
    samples_of,
)
from sorites.core import Encoder, Model
from sorites.core.errors import SoritesError
from sorites.suites.suite import parse


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Forty images of four classes, half of them by night, on grass or sand."""
    for number in range(40):
        place = tmp_path / "images" / CLASSES[number % 4]
        place.mkdir(parents=True, exist_ok=True)
        time, ground = ("day", "night")[number // 4 % 2], ("grass", "sand")[number // 8 % 2]
        Image.fromarray(drawn(number + 500, time, "sunny", [ground])).save(
            place / f"{number:02d}-{time}-{ground}.png"
        )
    return tmp_path / "images"


@pytest.fixture
def run(images: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    suite = parse({"name": "s", "shifts": ["jpeg"], "reference": "one"}, "test")
    sorites.run(suite, source=f"folder:{images}", models=[tiny("one")], out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.slow
def test_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told attributes stand in the table, shifted images have those of their clean image, and the
    gap can be asked.
    """
    heads = fit_heads(world(), seeing(), "seeing")
    monkeypatch.setattr("sorites.apps.annotation.predict.core.model", lambda spec: seeing())
    table = tmp_path / "uncommon.tsv"
    table.write_text("category\ttime\tlocation\n" + "".join(f"{name}\tnight\tsand\n" for name in _names()))
    heads = replace(heads, reach=replace(heads.reach, limit=2.0))
    path, counts = predict_run(run, *by_heads(heads), uncommon=str(table))
    assert path == run / "facts" / "attributes.parquet"
    assert counts.filter(pl.col("kind") == "time")["images"].sum() == 240
    rows = sorites.read(run).select("sample_id", "image_id", "shift", "attrs", "degrees").collect()
    for sample, _, _, attrs, degrees in rows.rows():
        words = {attr["key"]: attr["value"] for attr in attrs}
        assert words["time"] == sample.split("-")[1]
        assert {attr["common"] for attr in attrs if attr["key"] == "time"} == {words["time"] == "day"}
        assert {degree["measure"] for degree in degrees} == {
            "time_confidence",
            "weather_confidence",
            "location_confidence",
        }
        assert all(0 < degree["value"] <= 1 for degree in degrees)
    gap = sorites.attribute_gap(sorites.read(run)).filter(pl.col("class").is_null())
    assert set(gap["kind"]) >= {"time", "location", "any"}
    parts = sorites.partition_accuracy(sorites.read(run))
    assert parts.filter(pl.col("kinds").is_null())["n"].sum() == 240
    record = json.loads((run / "facts" / "attributes.json").read_text())
    assert record["told_by"] == "heads"
    assert record["model"] == "seeing"


def _names() -> list[str]:
    from sorites.core.labels import imagenet

    space = imagenet()
    return [space.names[space.find(id_)] for id_ in CLASSES]


@pytest.mark.slow
def test_source(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder becomes a table of words with confidence; heads of other weights are refused."""
    heads = fit_heads(world(), seeing(), "seeing")
    monkeypatch.setattr("sorites.apps.annotation.predict.core.model", lambda spec: seeing())
    near = replace(heads, reach=replace(heads.reach, limit=2.0))
    told = predict_source(by_heads(near)[0], samples_of(f"folder:{images}"))
    times = told.filter(pl.col("kind") == "time")
    assert times.height == 40
    assert all(value in image for image, value in times.select("image", "value").rows())
    monkeypatch.setattr("sorites.apps.annotation.predict.core.model", lambda spec: seeing("2"))
    with pytest.raises(SoritesError, match="other weights"):
        by_heads(heads)


def brightness() -> Encoder:
    """An encoder whose texts are near to dark and bright images."""

    def images(images_u8: list[np.ndarray], framed: bool) -> np.ndarray:
        light = np.array([image.mean() / 255 for image in images_u8])
        return np.stack([light, 1 - light], axis=1).astype(np.float32)

    def texts(sentences: list[str]) -> np.ndarray:
        return np.array([[0.1, 0.9] if "night" in text else [0.45, 0.55] for text in sentences], np.float32)

    return Encoder("brightness", images, texts, version="7")


@pytest.mark.slow
def test_texts(run: Path) -> None:
    """An encoder's softmax is that of its cosines times the scale; the record says that texts told it."""
    texts = {"time": {"day": "a {class} by day", "night": "a {class} at night"}}
    teller, record = by_texts(ReferenceTexts(brightness(), "brightness", texts))
    image = np.full((8, 8, 3), 128, np.uint8)
    told = teller([ImageQuery("x", lambda: image, "cat")], lambda n: None)
    ((word, share),) = told["x"]["time"]
    seen = np.array([128 / 255, 1 - 128 / 255])
    cosines = [
        seen @ v / np.linalg.norm(seen) / np.linalg.norm(v)
        for v in (np.array([0.45, 0.55]), np.array([0.1, 0.9]))
    ]
    raised = np.exp(100 * np.array(cosines))
    assert word == "day"
    assert share == pytest.approx(raised[0] / raised.sum(), abs=1e-4)
    predict_run(run, teller, record, "counts")
    kept = json.loads((run / "facts" / "attributes.json").read_text())
    assert kept["told_by"] == "an encoder's softmax over texts"
    assert (kept["encoder"], kept["version"], kept["uncommon"]) == ("brightness", "7", "counts")
    rows = sorites.read(run).select("sample_id", "attrs").collect().rows()
    right = [
        attr["value"] == sample.split("-")[1]
        for sample, attrs in rows
        for attr in attrs
        if attr["key"] == "time"
    ]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[wether]\na='x'",
        "[weather]\nraining='x'",
        "[weather]\nraining='x'\nwet='y'",
        "[time]\nday=5\nnight='x'",
        "time = 5",
    ],
)
def test_wrong_texts(tmp_path: Path, text: str) -> None:
    """A wrong file of texts is refused by name."""
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(SoritesError, match=r"t\.toml"):
        read_texts(str(tmp_path / "t.toml"))


def test_published_texts() -> None:
    """The published texts of OOD-CV's weather are there for any encoder."""
    texts = reference_texts("toy").texts["weather"]
    assert texts["raining"] == "a picture of a {class} in rain"
    assert texts["none"] == "a picture of a {class} without snow nor fog nor rain"


@pytest.mark.slow
def test_commonness(run: Path) -> None:
    """FOCUS's table knows categories by ImageNet's class names; by counts a rare word is uncommon;
    "none" is neither.
    """
    table = Commonness.chosen("evaluation", run, [])
    assert table("tabby", "time", "night") is False
    assert table("tabby", "location", "grass") is True
    assert table("tabby", "time", "none") is None
    assert table("toaster", "time", "night") is None
    assert Commonness.chosen("notebook", run, [])("goldfinch", "location", "rocks") is False
    assert table("goldfinch", "location", "rocks") is True
    told = [("Cat", {"time": [("day", 1.0)]})] * 19 + [("Cat", {"time": [("night", 1.0)]})]
    counts = Commonness.chosen("counts", run, told)
    assert (counts("cat", "time", "day"), counts("cat", "time", "night")) == (True, False)
