"""Errors are tried again when a run goes on, once; an image that still cannot be decoded is left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.conftest import CLASSES, scene

from sorites.core import Model, Outputs, table
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.suites.suite import parse


class Moody:
    """A model that fails on dark images while it is ``broken``."""

    def __init__(self, held: Model) -> None:
        self.held, self.broken, self.seen = held, True, 0

    def __call__(self, images: list[Any]) -> Outputs:
        self.seen += len(images)
        if self.broken and len(images) == 1 and images[0].shape[0] == 63:
            raise RuntimeError("no room left on the device")
        if self.broken and any(image.shape[0] == 63 for image in images):
            raise RuntimeError("a batch")
        return self.held.forward(images)

    def run(self, photos: Path, out: Path) -> pl.DataFrame:
        self.seen = 0
        model = Model("tiny", self, labels=self.held.labels, version="1", scale="logits")
        recipe = {
            "name": "s",
            "shifts": [{"name": "jpeg", "levels": [1]}],
            "models": ["tiny"],
            "source": f"folder:{photos}",
        }
        plan = plans.make(parse(recipe, "test"), models={"tiny": model})
        runner.execute(runner.prepare(plan), out, say=lambda text: None)
        return table.read(out).collect()


@pytest.fixture
def mine(photos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(photos, tmp_path / "mine"))


def errors(rows: pl.DataFrame) -> int:
    return rows["error"].count()


def test_an_error_of_the_model_is_tried_again_and_gone(
    mine: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    model = Moody(tiny())
    before = model.run(mine, tmp_path / "run")
    assert errors(before) == 2
    model.broken = False
    after = model.run(mine, tmp_path / "run")
    assert errors(after) == 0
    assert after.height == before.height
    assert model.seen == 1 + 2 * 16, "the unit of the clean image and that of the shifted one"


def test_an_error_that_stays_is_tried_again_once(
    mine: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    model = Moody(tiny())
    before = model.run(mine, tmp_path / "run")
    assert model.run(mine, tmp_path / "run").sort("image_id").equals(before.sort("image_id"))
    assert model.seen > 1
    assert model.run(mine, tmp_path / "run").height == before.height
    assert model.seen == 1


def test_a_image_that_cannot_be_decoded_is_left_alone_until_it_is_mended(
    mine: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    model, broken = Moody(tiny()), mine / CLASSES[2] / "p02.png"
    model.broken = False
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    before = model.run(mine, tmp_path / "run")
    assert errors(before) == 2
    assert model.run(mine, tmp_path / "run").equals(before)
    assert model.seen == 1
    Pillow.fromarray(scene(2, 66, 80)).save(broken)
    after = model.run(mine, tmp_path / "run")
    assert errors(after) == 0
    assert after.height == before.height


def test_a_image_that_can_be_read_again_is_tried_again(
    mine: Path, tmp_path: Path, tiny: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk failed while the file stayed the same."""
    model = Moody(tiny())
    model.broken = False

    def fails(path: Path, name: str = "") -> Any:
        if Path(path).name == "p02.png":
            raise OSError(5, "Input/output error")
        return np.asarray(Pillow.open(path).convert("RGB"))

    with monkeypatch.context() as patched:
        patched.setattr("sorites.io.decode.decode", fails)
        assert errors(model.run(mine, tmp_path / "run")) == 2
    assert errors(model.run(mine, tmp_path / "run")) == 0


def test_more_logits_later_are_error_rows_and_no_mixed_table(
    mine: Path, tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    class Growing(Moody):
        def __call__(self, images: list[Any]) -> Outputs:
            given = self.held.forward(images)
            if len(images) == 1 and images[0].shape[0] != 63:
                return given
            extra = np.zeros((len(images), 1), np.float32)
            return Outputs(np.hstack([given.logits, extra]), given.features)

    rows = Growing(tiny()).run(mine, tmp_path / "run")
    assert rows.height == 40
    failed = rows.filter(pl.col("error").is_not_null())
    assert failed["sample_id"].unique().to_list() == [f"{CLASSES[1]}/p01.png"]
    assert failed["error"][0] == "model tiny returned logits of shape (5,), not (4,) as before"
    assert failed["pred"].null_count() == failed.height
