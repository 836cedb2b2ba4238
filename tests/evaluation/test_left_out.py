from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

import sorites
from sorites.core import Generated, ImageU8, Model, Sample
from sorites.core.errors import BadImage
from sorites.evaluation.images import LeftOut, readable
from sorites.evaluation.integrity.check import check
from sorites.suites.suite import parse


def broken() -> ImageU8:
    raise BadImage("truncated")


def test_images_that_cannot_be_read_are_counted_with_the_first_reason() -> None:
    left = LeftOut()
    fine = Sample("a", Generated(lambda: np.zeros((4, 4, 3), np.uint8)))
    assert [
        sample.id
        for sample, _ in readable(
            [Sample("b", Generated(broken)), fine, Sample("c", Generated(broken))], left
        )
    ] == ["a"]
    assert left.say() == "2 images could not be read and are left out; the first, b: truncated"
    assert LeftOut().say() == ""


def test_a_name_that_is_not_utf8_is_a_row_like_any_other(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    folder = os.fsencode(tmp_path) + b"/set/n01440764"
    os.makedirs(folder)
    data = next(photos.rglob("*.png")).read_bytes()
    for name, held in ((b"good\xff.png", data), (b"bad\xfe.png", b""), ("plain ü.png".encode(), data)):
        with open(folder + b"/" + name, "wb") as file:
            file.write(held)
    suite = parse({"name": "s", "shifts": ["contrast"], "source": f"folder:{tmp_path / 'set'}"}, "test")
    rows = sorites.run(suite, models=[tiny()], out=tmp_path / "run").collect()
    names = {"n01440764/good\\udcff.png", "n01440764/bad\\udcfe.png", "n01440764/plain ü.png"}
    assert set(rows["sample_id"]) == names
    (said,) = set(rows["error"].drop_nulls())
    assert said.endswith("bad\\udcfe.png: the file is empty")
    assert "tiny: 18 rows, 6 errors, complete" in check(str(tmp_path / "run"))
