"""Photographs as samples whose dials a diffusion model draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.conftest import scene
from tests.diffusion.test_instruct import pix2pix

from sorites import core, metrics
from sorites.core import Sample, table
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import labels
from sorites.diffusion.toy import world
from sorites.evaluation.facts.similarity import similarity
from sorites.evaluation.run import run
from sorites.suites.suite import parse

SPACE = labels(("disc", "square", "triangle", "cross", "cup"))
HOW = "steps=3&severities=0.2,0.4&start=600"


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs of two shapes, 16 px wide as the toy pipeline, and one of a class without a slider."""
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    for number, name in enumerate(("disc", "cross", "cup")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        drawn = world.draw("cross" if name == "cup" else name, "plain", np.random.default_rng(number))
        Image.fromarray((drawn * 255).round().astype(np.uint8)).save(tmp_path / "photos" / name / "p.png")
    return tmp_path / "photos"


def read(spec: str) -> list[Sample]:
    return list(core.source(spec, SPACE).samples)


@pytest.mark.parametrize("method", ["edit_friendly", "ddim"])
def test_the_clean_image_is_the_photograph_and_dials_move_it(photos: Path, method: str) -> None:
    with pytest.warns(Notice, match="1 of 3 photographs") as told:
        found = read(f"edited:toy?photos=folder:{photos}&method={method}&{HOW}")
    assert [warning.message.code for warning in told] == ["no_slider"]  # type: ignore[union-attr]
    assert [sample.id for sample in found] == ["cross/p.png", "disc/p.png"]
    one = found[1]
    with Image.open(photos / "disc" / "p.png") as file:
        np.testing.assert_array_equal(one.load(), np.asarray(file))
    assert {dial.name: dial.levels for dial in one.dials} == {
        "night": (0.2, 0.4), "snow": (0.2, 0.4), "reconstruction": (1.0,),
    }  # fmt: skip
    snow, plain = one.dial("snow"), one.dial("reconstruction")
    assert snow is not None
    assert plain is not None
    low, high = snow.sweep([0.2, 0.4])
    clean = one.load() / 255
    assert 0 < np.abs(low - clean).mean() < np.abs(high - clean).mean()
    np.testing.assert_array_equal(next(iter(snow.sweep([0.4]))), high)
    if method == "edit_friendly":
        np.testing.assert_allclose(next(iter(plain.sweep([1.0]))), clean, atol=1 / 255)
    other = read_quietly(f"edited:toy?photos=folder:{photos}&method={method}&{HOW}&guidance=2")
    assert other[1].dials[0].version != one.dials[0].version


def read_quietly(spec: str) -> list[Sample]:
    with pytest.warns(Notice, match="photographs"):
        return read(spec)


def test_an_instruction_is_a_dial_too(photos: Path, tmp_path: Path) -> None:
    pix2pix().save_pretrained(tmp_path / "pipeline")
    spec = (
        f"edited:{tmp_path / 'pipeline'}?photos=folder:{photos}&instruction=a disc in snow&shift=snow&steps=2"
    )
    one = read(spec)[0]
    assert [dial.name for dial in one.dials] == ["snow", "reconstruction"]
    low, high = one.dials[0].sweep([0.5, 1.0])
    assert low.shape == high.shape == (16, 16, 3)
    assert np.abs(low - high).max() > 0
    assert read(spec + "&image_guidance=2")[0].dials[0].version != one.dials[0].version


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("steps=3", "expected photos=SPEC"),
        ("photos=folder:PHOTOS&method=dim", "no inversion named 'dim'"),
        ("photos=folder:PHOTOS&shift=snow", "needs instruction"),
        ("photos=folder:PHOTOS&instruction=x&method=ddim", "belongs to sliders"),
        ("photos=folder:PHOTOS&steps=few", "whole number"),
    ],
)
def test_what_cannot_be_is_said(photos: Path, options: str, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        read(f"edited:toy?{options.replace('PHOTOS', str(photos))}")


@pytest.mark.slow
def test_similarity_and_reconstruction_stand_beside_accuracy(photos: Path, tmp_path: Path) -> None:
    """The medians are those of the measured degrees; what was not measured is null."""
    (photos / "cup" / "p.png").unlink()
    Image.fromarray(scene(1, 40, 50)).save(photos / "disc" / "q.png")
    suite = {
        "name": "own",
        "source": f"edited:toy?photos=folder:{photos}&{HOW}",
        "labels": list(SPACE.names[:4]),
    }
    run(parse({**suite, "models": ["toy:all"]}, "own"), out=tmp_path / "run")
    similarity(tmp_path / "run", ("psnr",))
    found = metrics.edited_accuracy(table.read(tmp_path / "run"))
    assert set(found["shift"]) == {"clean", "night", "snow", "reconstruction"}
    rows = table.read(tmp_path / "run").collect()
    degrees = rows.select("shift", "severity", pl.col("degrees").list.first().struct.field("value"))
    for row in found.filter(pl.col("shift") != "clean").to_dicts():
        own = degrees.filter(shift=row["shift"], severity=row["severity"])["value"]
        assert row["psnr"] == pytest.approx(own.median())
        assert row["n"] == 3
    assert found["reconstruction_psnr"].n_unique() == 1
    assert found["reconstruction_psnr"][0] > 25
    assert found["lpips"].null_count() == found["kept"].null_count() == found.height
