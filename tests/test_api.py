"""The package as a user imports it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sorites
from sorites.core import METRICS, Model


def test_every_public_name_resolves() -> None:
    assert sorted(set(sorites.__all__)) == sorted(sorites.__all__)
    for name in [*sorites.__all__, *dir(sorites)]:
        assert getattr(sorites, name) is not None
    assert set(sorites.__all__) <= set(dir(sorites))


def test_metrics_are_called_by_their_names() -> None:
    for name in METRICS.names():
        assert getattr(sorites, name).__wrapped__ is METRICS.get(name)


def test_what_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(sorites, "acuracy")
    with pytest.raises(AttributeError, match="module 'sorites' has no attribute 'acuracy'"):
        _ = sorites.acuracy


def test_importing_it_is_cheap() -> None:
    code = (
        "import sys, sorites; print(sorted({'numpy', 'polars', 'torch', 'pydantic', 'PIL', 'typer'} &"
        " set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_look_ups_by_name(photos: Path) -> None:
    assert sorites.shift("jpeg").unit == "100 - quality"
    assert len(sorites.source(f"folder:{photos}")) == 20
    assert callable(sorites.scorer("msp", temperature=2.0))


def test_a_function_may_be_a_model(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    from sorites.suites.suite import Suite

    made = tiny()

    def four(images: list) -> object:  # type: ignore[type-arg]
        return made.forward(images).logits

    classes = list(made.labels or ())
    table = sorites.run(
        Suite(name="s"),
        source=f"folder:{photos}",
        models=[four],
        labels=classes,
        shifts=["jpeg"],
        limit=3,
        out=tmp_path / "r",
    )
    assert isinstance(table, sorites.Run)
    assert type(table.table) is pl.LazyFrame
    answer = sorites.accuracy(table, by=["model"])
    assert (answer["model"].to_list(), answer["n"].to_list()) == (["four"], [18])


def test_the_same_table_from_the_run_and_from_its_folder(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    from sorites.suites.suite import Suite

    table = sorites.run(
        Suite(name="s"),
        source=f"folder:{photos}",
        models=[tiny()],
        shifts=["jpeg"],
        limit=3,
        out=tmp_path / "r",
    )
    assert sorites.read(tmp_path / "r").collect().equals(table.collect())


@pytest.mark.slow
def test_a_run_knows_its_folder_and_shows_itself(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    from sorites.suites.suite import Suite

    given = {
        "source": f"folder:{photos}",
        "models": [tiny("one"), tiny("two")],
        "limit": 3,
        "keep_features": True,
    }
    tables = [
        sorites.run(Suite(name="s"), shifts=["jpeg"], out=tmp_path / name, **given) for name in ("a", "b")
    ]  # type: ignore[arg-type]
    table: Any = tables[0]
    assert table.folder == tmp_path / "a"
    assert repr(table).startswith(
        f"the run {tmp_path / 'a'}: 36 rows of 3 samples\n  2 models: one, two\n  2 shifts: clean, jpeg"
    )
    part = table.filter(pl.col("shift") == "jpeg")
    assert (part.folder, part.plan) == (table.folder, table.plan)
    assert "1 shifts: jpeg" in part._repr_html_()
    assert sorites.accuracy(part, by=["shift"])["shift"].to_list() == ["jpeg"]
    assert sorites.score(table, "energy") == {"energy": 36}
    assert "18 rows, 0 errors, complete" in sorites.check(table.folder)
    both = sorites.read([tmp_path / "b", tmp_path / "b"])
    assert both.collect().height == tables[1].collect().height
    assert sorites.similarity(table, ["psnr"]).exists()


def test_a_strip_from_a_file_an_array_or_a_pillow_image(photos: Path, tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image as Pillow

    path = sorted(photos.rglob("*.png"))[0]
    with Pillow.open(path) as opened:
        image = opened.convert("RGB")
    strips = [
        sorites.show("jpeg", given, [50.0], out=tmp_path / "s.png")
        for given in (path, image, np.asarray(image))
    ]
    assert len({np.asarray(strip).tobytes() for strip in strips}) == 1
    with Pillow.open(tmp_path / "s.png") as saved:
        assert saved.size == strips[0].size
    some = sorites.show("style", path, settings=[{"style": "gray"}])
    assert some.width < sorites.show("style", path).width
    with pytest.raises(sorites.SoritesError, match="style has no setting with"):
        sorites.show("style", path, settings=[{"style": "grey-ish"}])
    with pytest.raises(sorites.SoritesError, match="a Pillow image or an 8-bit array"):
        sorites.show("jpeg", np.zeros((4, 4, 3), np.float32))  # type: ignore[arg-type]
