"""The small untrained pipeline of the diffusion tests, and a recipe of a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.diffusion.conftest import xl

from sorites.apps.generation.recipes import TOY
from sorites.apps.generation.sliders import train_sliders
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import SamplerOptions
from sorites.diffusion.shelves import Concept, Shelf, shelf
from tools import toy_world as world

QUICK = replace(TOY, name="quick", steps=4, batch=2, noise_steps=4, refresh=2)
FEW = SamplerOptions(steps=4, guidance=2.0, negative="")
CONCEPTS = [Concept(0, "disc"), Concept(3, "cross")]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    folder = tmp_path_factory.mktemp("pipelines") / "tiny"
    world.pipeline(width=16).save_pretrained(folder)
    return load(folder)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    folder = tmp_path_factory.mktemp("pipelines") / "large"
    xl().save_pretrained(folder)
    return load(folder)


def stopped(train: Callable[[Path, Callable[[int], None]], Any], folder: Path) -> tuple[Any, Any]:
    """Train once as a whole, and once with an interrupt after five steps of which four were kept;
    return what both gave.
    """
    ticks: list[int] = []

    def stop(n: int) -> None:
        ticks.append(n)
        if sum(ticks) == 5:
            raise KeyboardInterrupt

    whole = train(folder / "whole", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        train(folder / "part", stop)
    ticks.clear()
    again = train(folder / "part", ticks.append)
    assert ticks[0] == 4, "four steps were kept"
    return whole, again


@pytest.fixture(scope="session")
def slider_folder(tiny: Pipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sliders")
    train_sliders(tiny, CONCEPTS, ["snow", "night"], QUICK, out, FEW)
    return out


@pytest.fixture(scope="session")
def sliders(slider_folder: Path) -> Shelf:
    return shelf(slider_folder)
