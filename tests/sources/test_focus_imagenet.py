"""FOCUS's attributes of ImageNet's validation images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow

import sorites
from sorites import core, metrics
from sorites.core import Attr, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.sources.papers.focus import accepted_labels, words_of_list

# number, WordNet id, time, weather, locations in the order forest grass indoors rocks sand street
# snow water none
ROWS = [
    (1, "n02123045", "night", "none", "[0, 1, 0, 0, 0, 1, 0, 0, 0]"),
    (2, "n02123045", "day", "snowing", "[0, 0, 0, 0, 0, 0, 1, 0, 0]"),
    (3, "n02690373", "day", "partly cloudy", "[0, 0, 0, 0, 0, 0, 0, 1, 0]"),
    (4, "n02123045", "none", "none", "[0, 0, 0, 0, 0, 0, 0, 0, 1]"),
]


def name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def annotated(root: Path, rows: list[tuple[int, str, str, str, str]] = ROWS, flat: bool = False) -> Path:
    for number, wnid, *_ in rows:
        path = root / "val" / ("" if flat else wnid) / name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(np.full((6, 6, 3), 40 * number, np.uint8)).save(path)
    lines = [f'/imagenet-val/{name(n)},{time},{weather},"{places}"' for n, _, time, weather, places in rows]
    (root / "cleaned.csv").write_text("\n".join(["image,time,weather,locations", *lines]) + "\n")
    return root / "cleaned.csv"


def test_the_category_follows_from_the_class_folder(tmp_path: Path) -> None:
    found = {
        sample.id: sample for sample in core.source(f"focus:{annotated(tmp_path)}?images={tmp_path / 'val'}")
    }
    cat = found[f"n02123045/{name(1)}"]
    assert (cat.label, cat.right) == (imagenet().find("n02123045"), accepted_labels(imagenet())["cat"])
    assert cat.attrs == (
        Attr("class", "cat"), Attr("time", "night", False), Attr("weather", "none", None),
        Attr("location", "grass", True), Attr("location", "street", True),
    )  # fmt: skip
    assert found[f"n02690373/{name(3)}"].attrs[-1] == Attr("location", "water", False), (
        "water is uncommon for planes"
    )
    assert found[f"n02123045/{name(4)}"].attrs[-1] == Attr("location", "none", None)
    assert abs(int(cat.load().mean()) - 40) < 3


def test_classes_may_come_from_a_file(tmp_path: Path) -> None:
    table = annotated(tmp_path, flat=True)
    (tmp_path / "ground_truth.txt").write_text(
        "".join(f"val/{name(number)} {wnid}\n" for number, wnid, *_ in ROWS)
    )
    found = {
        sample.id: sample
        for sample in core.source(f"focus:{table}?ground_truth={tmp_path / 'ground_truth.txt'}")
    }
    assert found[f"val/{name(2)}"].attrs[0] == Attr("class", "cat")
    assert found[f"val/{name(2)}"].load().shape == (6, 6, 3)


def test_images_of_other_classes_are_left_out_with_a_warning(tmp_path: Path) -> None:
    table = annotated(tmp_path, [*ROWS, (5, "n07753592", "none", "none", "[0, 0, 1, 0, 0, 0, 0, 0, 0]")])
    with pytest.warns(UserWarning, match="1 of 5 images"):
        assert len(core.source(f"focus:{table}")) == 4


def test_equation_1_gap_on_imagenets_own_images(tmp_path: Path) -> None:
    """A model that is wrong on bright images (3 and 4): the gap of each kind by counting the rows above."""

    def logits(images: list[np.ndarray]) -> Outputs:
        made = np.zeros((len(images), 1000), np.float32)
        for i, image in enumerate(images):
            made[i, 281 if image.mean() < 100 else 0] = 9
        return Outputs(made)

    rows = sorites.run(
        "focus", source=f"focus:{annotated(tmp_path)}", models=[Model("m", logits)], out=tmp_path / "run"
    )
    gaps = metrics.attribute_gap(rows).filter(pl.col("class").is_null())
    found = {row["kind"]: row["value"] for row in gaps.to_dicts()}
    assert found["time"] == pytest.approx(1 / 2 - 1), "day: 2 right, 3 wrong; night: 1 right"
    assert found["weather"] == pytest.approx(0 - 1), "partly cloudy: 3 wrong; snowing: 2 right"
    assert found["location"] == pytest.approx(1 - 1 / 2), (
        "grass and street: 1 right; snow and water: 2 right, 3 wrong"
    )


def test_a_list_has_nine_marks() -> None:
    assert words_of_list("[1 0 0 0 0 0 0 1 0]", "x") == ["forest", "water"]
    assert words_of_list("[0, 0, 0, 0, 0, 0, 0, 0, 0]", "x") == ["none"]
    for text in ("[0, 1]", "grass", "[0, 2, 0, 0, 0, 0, 0, 0, 0]"):
        with pytest.raises(SoritesError, match="9 zeros and ones"):
            words_of_list(text, "x")


@pytest.mark.parametrize(
    ("spoil", "query", "match"),
    [
        (
            ("noon", "none", ROWS[0][4]),
            "",
            "time 'noon'",
        ),
        (
            ("day", "none", "[0, 1]"),
            "",
            "9 zeros and ones",
        ),
        (
            ("day", "none", ROWS[0][4]),
            "?images=/nowhere",
            "images=DIR, the folder",
        ),
        (
            ("day", "none", ROWS[0][4]),
            "?images={}/val/n02690373",
            "row 1",
        ),
        (
            ("day", "none", ROWS[0][4]),
            "?ground_truth=/nowhere",
            "lines of file name",
        ),
    ],
)
def test_bad_input_is_reported(tmp_path: Path, spoil: tuple[str, str, str], query: str, match: str) -> None:
    table = annotated(tmp_path, [(*ROWS[0][:2], *spoil), *ROWS[1:]])
    with pytest.raises(SoritesError, match=match):
        core.source(f"focus:{table}{query.format(tmp_path)}")
