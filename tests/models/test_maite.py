"""Datasets and models that follow MAITE's protocols."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sorites
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import labels
from sorites.io.maite import image_of

NAMES = ("apple", "pear", "plum")


def image(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (3, 20, 24 + i), np.uint8)


class Fruit:
    """A dataset of image classification."""

    metadata: ClassVar = {"id": "fruit", "index2label": dict(enumerate(NAMES))}

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> tuple[Any, Any, dict[str, Any]]:
        return image(i), np.eye(3)[i % 3], {"id": f"f{i}"}


class Colours:
    """A model of image classification: the mean of each channel."""

    metadata: ClassVar = {"id": "colours", "index2label": dict(enumerate(NAMES))}

    def __call__(self, batch: Any) -> list[np.ndarray]:
        return [np.asarray(one, np.float32).mean(axis=(1, 2)) for one in batch]


@dataclass
class Found:
    boxes: Any
    labels: Any
    scores: Any


class Scenes(Fruit):
    """A dataset of object detection."""

    def __getitem__(self, i: int) -> tuple[Any, Any, dict[str, Any]]:
        return image(i), Found([[1, 2, 9, 8]], [i % 3], [1.0]), {"id": f"f{i}"}


class Finder(Colours):
    """A detector that finds one object, with scores per class."""

    def __call__(self, batch: Any) -> list[Any]:
        return [Found([[1, 2, 9, 8]], [2], [[0.1, 0.2, 0.7]]) for _ in batch]


def test_a_dataset_and_a_model() -> None:
    space = labels(["plum", "apple", "pear"])
    source = sorites.source(f"maite:{__name__}:Fruit", space)
    assert [(s.id, space.ids[s.label or 0]) for s in source] == [(f"f{i}", NAMES[i % 3]) for i in range(5)]
    assert np.array_equal(source.samples[1].load(), image(1).transpose(1, 2, 0))
    model = sorites.model(f"maite:{__name__}:Colours")
    assert model.labels == NAMES
    logits = model([source.samples[1].load()]).logits
    assert logits is not None
    assert np.allclose(logits[0], image(1).mean(axis=(1, 2)))
    floats = sorites.model(f"maite:{__name__}:Colours?input=float")([source.samples[1].load()]).logits
    assert floats is not None
    assert np.allclose(floats[0] * 255, logits[0], rtol=1e-5)


def test_boxes() -> None:
    space = labels(NAMES)
    first, *_ = sorites.source(f"maite:{__name__}:Scenes", space)
    assert first.ground_truth == (sorites.core.Box((1, 2, 9, 8), 0),)
    model = sorites.model(f"maite:{__name__}:Finder")
    (found,) = (model([first.load()]).boxes or [()])[0]
    assert (model.output, found.xyxy, found.label, found.conf) == ("boxes", (1, 2, 9, 8), 2, 0.7)


def test_other_structures_are_refused() -> None:
    with pytest.raises(SoritesError, match="metadata"):
        sorites.source("maite:builtins:dict")
    with pytest.raises(BadImage, match=r"0\.\.1"):
        image_of(np.full((3, 4, 4), 200.0), "x")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_the_protocols_of_the_real_library(tmp_path: Path) -> None:
    protocols = pytest.importorskip("maite.protocols", reason="needs: pip install 'sorites[peers]'")
    from maite.protocols import image_classification, object_detection
    from maite.tasks import predict

    assert protocols
    assert isinstance(Fruit(), image_classification.Dataset)
    assert isinstance(Colours(), image_classification.Model)
    assert isinstance(Finder(), object_detection.Model)
    predictions, _ = predict(model=Colours(), dataset=Fruit(), batch_size=2)
    theirs = np.stack([np.asarray(row) for batch in predictions for row in batch])
    source, model = (
        sorites.source(f"maite:{__name__}:Fruit", labels(NAMES)),
        sorites.model(f"maite:{__name__}:Colours"),
    )
    ours = model([sample.load() for sample in source]).logits
    assert ours is not None
    assert np.allclose(ours, theirs)
    run = sorites.run(
        "demo", source=f"maite:{__name__}:Fruit", models=[f"maite:{__name__}:Colours"], labels=list(NAMES), shifts=["defocus_disk"], out=tmp_path / "run",
    )  # fmt: skip
    assert run.table.collect()["error"].is_null().all()
