"""The published recipes from their layouts to a model, on small real data.

What needs ImageNet or published weights of other networks is run with lite0 on photographs of
objects, at 64 px, for few epochs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training import layouts

from sorites import core
from sorites.core.errors import SoritesError
from sorites.training import data, history
from sorites.training.loop import train
from sorites.training.recipe import load

pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")
pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"model": "lite0", "size": 64, "batch": 8, "workers": 1}


@pytest.fixture(scope="module", autouse=True)
def photographs() -> None:
    try:
        layouts.stamps()
    except SoritesError as error:
        pytest.skip(f"the photographs cannot be fetched: {error}")


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in history.read(folder) if "loss" in row]


def is_learning(folder: Path) -> bool:
    """Whether the mean loss of the last third of the steps is below that of the first."""
    found = losses(folder)
    third = len(found) // 3
    return float(np.mean(found[-third:])) < float(np.mean(found[:third]))


def answers(folder: Path) -> int:
    """Return how many classes the trained model has."""
    logits = core.model(f"trained:{folder}")([np.zeros((64, 64, 3), np.uint8)], False).logits
    assert logits is not None
    return logits.shape[1]


@pytest.mark.long
def test_focus_heads_learn_categories_with_a_thousand_classes(tmp_path: Path) -> None:
    source = f"focus:{layouts.focus(tmp_path / 'focus')}"
    recipe = load("focus_finetune")
    found = data.images(recipe.override({"data.source": source}))
    assert found.validation is not None
    whole = len(found.train) + len(found.validation)
    assert len(found.train) == int(whole * 0.7)
    folder = train(recipe, tmp_path / "out", source=source, epochs=3, lr=0.01, **SMALL)
    assert is_learning(folder)
    assert answers(folder) == 1000


@pytest.mark.parametrize("variant", ["flowers", "cars"])
def test_flowers_and_cars_train_the_head_and_then_all_layers(tmp_path: Path, variant: str) -> None:
    parts = ("",) if variant == "flowers" else ("train", "test")
    root = layouts.classes(tmp_path / "data", parts, most=4)
    sources = {
        "source": f"folder:{root / parts[0]}",
        "validation": 0.2 if variant == "flowers" else f"folder:{root / 'test'}",
    }
    recipe = load(f"flowers_cars@{variant}")
    stages = [{**stage.model_dump(), "epochs": 2} for stage in recipe.stretches]
    folder = train(recipe, tmp_path / "out", stages=stages, **sources, **SMALL)
    assert is_learning(folder)
    assert answers(folder) == 3
    assert (folder / "labels.txt").read_text().split() == ["birds", "fruit", "music"]


def test_heads_of_tiny_imagenets_classes(tmp_path: Path) -> None:
    root = layouts.tiny_imagenet(tmp_path / "tiny-imagenet")
    folder = train(
        "tiny_imagenet_heads@efficientnet_b0", tmp_path / "out", source=f"folder:{root}", epochs=6, **SMALL
    )
    assert is_learning(folder)
    assert answers(folder) == len(list(root.iterdir()))
    before = core.model("lite0").module
    after = core.model(f"trained:{folder}").module
    assert before is not None
    assert after is not None
    stem = [dict(module.named_parameters()) for module in (before, after)]
    first = next(name for name in stem[0] if name.endswith("_conv_stem.weight"))
    same = next(name for name in stem[1] if name.endswith("_conv_stem.weight"))
    assert (stem[0][first] == stem[1][same]).all(), "only the head is trained"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layouts.imagenet_es(tmp_path_factory.mktemp("es"))


@pytest.mark.parametrize("rung", range(1, 7))
def test_every_rung_of_the_ladder(captured: Path, tmp_path: Path, rung: int) -> None:
    recipe = load(f"imagenet_es_ladder@{rung}")
    sources: dict[str, Any] = {
        "source": f"imagenet_es:{captured}/es-val",
        "validation": f"imagenet_es:{captured}/es-test",
    }
    if rung in (3, 6):
        sources["data.deep_augment.root"] = str(captured.parent)
    changes = {"data.source": sources["source"], "data.validation": sources["validation"]}
    changes |= {key: value for key, value in sources.items() if "." in key}
    found = data.images(recipe.override(changes))
    assert len(found.train) == (12 if rung in (3, 6) else 4)
    assert len(getattr(found.train, "shots", ())) in ((0,) if rung in (1, 2, 3, 6) else (99,))
    folder = train(recipe, tmp_path / "out", epochs=2, **sources, **(SMALL | {"batch": 4}))
    assert answers(folder) == 4
    assert np.isfinite(losses(folder)).all()


def test_half_made_images(tmp_path: Path) -> None:
    made, real = layouts.cns_bench(tmp_path / "cns"), layouts.tiny_imagenet(tmp_path / "imagenet")
    changes: dict[str, Any] = {
        "source": f"folder:{real}",
        "validation": 0.1,
        "data.made.source": f"cns_bench:{made}",
    }
    full = {
        "data.source": changes["source"],
        "data.validation": 0.1,
        "data.made.source": changes["data.made.source"],
    }
    found = data.images(load("synthetic").override(full)).train
    ids = [found.id(place) for place in range(len(found))]
    assert sum("heavy_snow" in id_ for id_ in ids) * 2 == len(ids)
    folder = train("synthetic", tmp_path / "out", epochs=1, **changes, **SMALL)
    assert is_learning(folder)
    assert answers(folder) == 1000
