"""Samples that a diffusion model draws while they are asked for, on a small untrained pipeline."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.apps.generation.recipes import TOY
from sorites.apps.generation.sliders import train_sliders
from sorites.core import Source, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.diffusion.pipeline import load
from sorites.diffusion.sampler import Request, SamplerOptions, along, sample
from sorites.diffusion.shelves import Concept, shelf
from tools import toy_world as world

FEW = SamplerOptions(steps=4, guidance=2.0, negative="")
SHAPES = labels(["disc", "cross"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("slider")
    world.pipeline(width=16).save_pretrained(root / "pipe")
    quick = replace(TOY, name="quick", steps=2, batch=2, noise_steps=4, refresh=2)
    train_sliders(
        load(root / "pipe"),
        [Concept(0, "disc"), Concept(3, "cross")],
        ["snow", "night"],
        quick,
        root / "out",
        FEW,
    )
    return root / "out"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))


def _read(folder: Path, more: str = "?seeds=2") -> Source:
    return core.source(f"slider:{folder}{more}", SHAPES)


def test_samples_are_classes_and_seeds_with_a_dial_per_slider(folder: Path) -> None:
    found = _read(folder)
    assert [sample.id for sample in found] == [
        f"{name}/seed_000{i}" for name in ("000_disc", "003_cross") for i in (1, 2)
    ]
    assert [sample.label for sample in found] == [0, 0, 1, 1]
    assert [dial.name for dial in found.samples[0].dials] == ["night", "snow"]
    assert found.samples[0].dials[0].levels == (0.5, 1.0, 1.5, 2.0, 2.5)


def test_the_clean_image_is_severity_0_of_every_dial(folder: Path) -> None:
    one = _read(folder).samples[0]
    for dial in one.dials:
        assert np.array_equal(to_uint8(next(iter(dial.sweep([0.0])))), one.load())


def test_images_are_those_of_the_sampler_and_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = _read(folder).samples[0]
    pipe = load(folder.parent / "pipe")
    slider = shelf(folder).slider(pipe, "snow", Concept(0, "disc"))
    want = sample(pipe, [along("a picture of a disc", 1, slider, (0.7, 2.0))], FEW)[0]
    dial = one.dial("snow")
    assert dial is not None
    first = list(dial.sweep([0.7, 2.0]))
    assert np.abs(np.subtract(first, want)).max() < 1 / 255
    monkeypatch.setattr("sorites.diffusion.sampler.sample", None)
    again = list(dial.sweep([2.0, 0.7]))[::-1]
    assert np.array_equal(first, again)


def test_a_damaged_image_of_the_cache_is_drawn_anew(folder: Path, tmp_path: Path) -> None:
    one = _read(folder).samples[0]
    clean = one.load()
    (kept,) = (tmp_path / "cache").rglob("*.png")
    kept.write_bytes(b"\x89PNG")
    with pytest.warns(UserWarning, match="damaged"):
        assert np.array_equal(one.load(), clean)


def test_versions_follow_from_sliders_and_drawing(folder: Path) -> None:
    first, again = (_read(folder).samples[0].dials[0].version for _ in range(2))
    assert first == again
    assert _read(folder, "?seeds=1&guidance=3").samples[0].dials[0].version != first


def test_how_images_are_drawn_can_be_changed(folder: Path) -> None:
    one = _read(folder, "?seeds=1&steps=2&size=32&severities=1,3").samples[0]
    assert one.load().shape == (32, 32, 3)
    assert one.dials[0].levels == (1.0, 3.0)
    pipe = load(folder.parent / "pipe")
    want = sample(pipe, [Request("a picture of a disc", 1)], replace(FEW, steps=2, size=32))[0][0]
    assert np.array_equal(one.load(), to_uint8(want))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("?seeds=0", "number from 1"),
        ("?steps=x", "steps as a whole number"),
        ("?speed=2", "no slider option named 'speed'"),
        ("?pipeline=/nowhere", "does not exist"),
    ],
)
def test_options_that_are_invalid_are_refused(folder: Path, more: str, message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        _read(folder, more)


@pytest.mark.parametrize("name", ["set[1]", "se*t", "two  blanks", "50%"])
def test_a_folder_is_read_by_its_literal_name(folder: Path, tmp_path: Path, name: str) -> None:
    for other in ("set1", "set"):
        (tmp_path / other).mkdir()
    shutil.copytree(folder, tmp_path / name)
    assert len(_read(tmp_path / name)) == 4


def test_a_class_outside_the_labels_is_refused(folder: Path) -> None:
    with pytest.raises(SoritesError, match="class disc is not among"):
        core.source(f"slider:{folder}", labels(["square"]))


def test_a_folder_without_sliders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no finished slider"):
        core.source(f"slider:{tmp_path}", SHAPES)
