"""Training of sliders: the objective against plain torch, going on after an interrupt, and what is
refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.generation.conftest import CONCEPTS, FEW, QUICK, stopped

from sorites.apps.generation import sliders
from sorites.apps.generation.recipes import RELEASED, SliderRecipe, recipe
from sorites.apps.generation.sliders import loss, train_sliders, trained
from sorites.core.errors import SoritesError
from sorites.diffusion import sliders as on_disk
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sliders import attach_sliders, targets
from sorites.reports.figures.strips import sheet


def _weights(slider: on_disk.Slider) -> list[Any]:
    return [part for _, low in sorted(slider.lows.items()) for part in low]


def test_the_released_numbers_are_the_defaults() -> None:
    found = RELEASED.facts()
    published = {
        "rank": 4,
        "alpha": 1.0,
        "layers": "noxattn",
        "steps": 400,
        "rate": 2e-4,
        "batch": 16,
        "noise_steps": 50,
        "eta": 4.0,
    }
    assert {key: found[key] for key in published} == published
    assert RELEASED.words("tench", "heavy snow") == ("tench", "tench, in heavy snow")


def test_noxattn_are_all_layers_but_those_to_the_text_and_of_time(tiny: Pipe) -> None:
    """The published trainer takes every linear and convolutional layer inside attention, resnets
    and samplers.
    """
    import torch

    inside = ("Attention", "ResnetBlock2D", "Downsample2D", "Upsample2D")
    unet, wanted = tiny.parts.unet, set()
    for name, module in unet.named_modules():
        if type(module).__name__ in inside and "attn2" not in name and "time_embed" not in name:
            for child, layer in module.named_modules():
                if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
                    wanted.add(f"{name}.{child}")
    assert set(targets(unet, "noxattn")) == wanted
    assert not wanted & set(targets(unet, "xattn"))


def test_the_loss_is_the_papers_equation(tiny: Pipe) -> None:
    """Against plain calls of the network; a slider that does nothing yet leaves neutral as its prediction."""
    import torch

    unet, draw = tiny.parts.unet, torch.Generator().manual_seed(0)
    neutral, positive = (
        encode_prompt(tiny, text, "", 16) for text in ("a picture of a disc", "a picture of a disc in snow")
    )
    x = torch.randn(3, 3, 16, 16, generator=draw)
    with torch.no_grad():
        a, b = (unet(x, 501, words.prompt.expand(3, -1, -1)).sample for words in (neutral, positive))
    with attach_sliders(unet, [{}]) as dial:
        found = loss(tiny, x, torch.tensor(501), (neutral, positive), dial, replace(QUICK, eta=3.0))
    torch.testing.assert_close(found, (3.0 * (b - a)).square().mean(), rtol=1e-4, atol=1e-9)


@pytest.mark.slow
def test_training_brings_the_prediction_nearer_to_its_target(tiny: Pipe, tmp_path: Path) -> None:
    import torch

    short = trained(tiny, "disc", "snow", QUICK, tmp_path / "a")
    long = trained(tiny, "disc", "snow", replace(QUICK, steps=24), tmp_path / "b")
    words = tuple(encode_prompt(tiny, text, "", 16) for text in QUICK.words("disc", "snow"))
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    found = []
    for slider in (short, long):
        with attach_sliders(tiny.parts.unet, [slider.lows]) as dial, torch.no_grad():
            whole = replace(QUICK, alpha=4.0)  # the scale of training is folded in
            found.append(float(loss(tiny, x, torch.tensor(501), words, dial, whole)))  # type: ignore[arg-type]
    assert found[1] < found[0]


@pytest.mark.slow
def test_an_interrupted_slider_goes_on_as_if_it_had_not_been(
    tiny: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(sliders, "STEPS_PER_CHECKPOINT", 2)
    many = replace(QUICK, steps=6)
    whole, again = stopped(lambda state, tick: trained(tiny, "disc", "snow", many, state, tick), tmp_path)
    for one, other in zip(_weights(whole), _weights(again), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.slow
def test_finished_sliders_are_left_and_others_refused(tiny: Pipe, slider_folder: Path) -> None:
    file = slider_folder / "snow" / "000_disc" / on_disk.WEIGHTS
    before = file.stat().st_mtime_ns
    opened: list[str] = []
    train_sliders(
        tiny,
        CONCEPTS,
        ["snow"],
        QUICK,
        slider_folder,
        FEW,
        bar=lambda what, steps: opened.append(what) or (lambda n: None),
    )  # type: ignore[func-returns-value]
    assert not opened
    assert file.stat().st_mtime_ns == before
    with pytest.raises(SoritesError, match="trained with eta 1.0, not 3.0"):
        train_sliders(tiny, CONCEPTS, ["snow"], replace(QUICK, eta=3.0), slider_folder, FEW)


def test_everything_is_recorded_with_the_weights(tiny: Pipe, slider_folder: Path) -> None:
    facts = json.loads((slider_folder / "snow" / "003_cross" / on_disk.RECORD).read_text())
    assert facts["class"] == "cross"
    assert facts["recipe"] == json.loads(json.dumps(QUICK.facts()))
    assert facts["drawing"] == json.loads(json.dumps(FEW.facts()))
    assert facts["pipeline_version"] == tiny.version
    assert set(facts["libraries"]) == {"torch", "diffusers", "transformers"}
    assert facts["positive"] == "a picture of a cross in snow"


def test_a_strip_shows_what_was_learnt(tiny: Pipe, tmp_path: Path) -> None:
    from PIL import Image

    folder = train_sliders(tiny, CONCEPTS[:1], ["snow"], replace(QUICK, steps=1), tmp_path, FEW, sheet)[0]
    with Image.open(folder / "strip.png") as page:
        assert page.width > 6 * 96
        assert page.height > 2 * 96


@pytest.mark.parametrize(
    ("key", "value"), [("eta", 0), ("rank", 0), ("rate", 1.0), ("positive", "snow"), ("noise_steps", 1)]
)
def test_a_recipe_that_cannot_be_is_refused(key: str, value: object) -> None:
    with pytest.raises(SoritesError, match=key):
        SliderRecipe(**{key: value})  # type: ignore[arg-type]


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(SoritesError, match="Did you mean released"):
        recipe("relased")
