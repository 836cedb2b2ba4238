"""Sliders from pairs of images: the objective by hand, resuming, built folders as pairs, and haze on the toy
world.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.generation.conftest import stopped
from tests.diffusion.folders import write_folder

from sorites import core
from sorites.apps.generation.image_pairs import Pair, learn_slider, learn_sliders, pairs_of
from sorites.apps.generation.recipes import TOY_PAIRS, PairRecipe, pair_recipe
from sorites.core import Sample, Setting, to_float, to_uint8
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.refs import ArrayRef
from sorites.core.rng import rng_for
from sorites.diffusion.latents import add_noise, image_error
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import SamplerOptions, along, sample
from sorites.diffusion.shelves import Concept, shelf
from sorites.diffusion.toy import world

QUICK = replace(TOY_PAIRS, name="quick", steps=6, batch=2)


def scene(shape: str, number: int, salt: int) -> np.ndarray:
    """Return a plain drawn scene in 8 bits."""
    return to_uint8(world.draw(shape, "plain", np.random.default_rng([salt, number])))


def hazed(image: np.ndarray, severity: float, key: str) -> np.ndarray:
    found = core.shift("haze")(to_float(image), severity, rng_for(0, key, "haze"))
    return np.asarray(np.clip(found, 0, 1))


def haze_pairs(shape: str, count: int, salt: int) -> list[Pair]:
    levels = core.shift("haze").levels
    return [
        Pair(image, to_uint8(hazed(image, severity, f"{number}")), severity / levels[-1])
        for number in range(count)
        for image in [scene(shape, number, salt)]
        for severity in levels
    ]


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_the_predicted_image_is_the_closed_form(tiny: Pipe, prediction: str) -> None:
    """The true noise or velocity of an image stands for that image, and another prediction for another."""
    import torch

    pipe = tiny
    old = pipe.parts.scheduler.config.prediction_type
    pipe.parts.scheduler.register_to_config(prediction_type=prediction)
    try:
        draw = torch.Generator().manual_seed(0)
        image, noise = (torch.randn(3, 3, 4, 4, generator=draw) for _ in range(2))
        times = torch.tensor([5, 400, 740])
        noisy, target = add_noise(pipe, image, noise, times)
        assert image_error(pipe, noisy, target, image, times).abs().max() < 1e-5
        moved = image_error(pipe, noisy, target, image + 1, times).flatten(1).mean(1)
        share = pipe.parts.scheduler.alphas_cumprod[times]
        weight = (share / (1 - share)).sqrt().clamp(max=1) if prediction == "epsilon" else torch.ones(3)
        torch.testing.assert_close(moved, -weight, atol=1e-4, rtol=1e-4)
    finally:
        pipe.parts.scheduler.register_to_config(prediction_type=old)


@pytest.mark.slow
def test_training_goes_on_after_an_interrupt_with_the_same_result(
    tiny: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sorites.apps.generation import image_pairs

    monkeypatch.setattr(image_pairs, "STEPS_PER_CHECKPOINT", 2)
    pairs = haze_pairs("disc", 2, 3)

    def train(state: Path, tick: Any) -> Any:
        return learn_slider(tiny, "disc", "haze", pairs, QUICK, state, tick)

    whole, again = stopped(train, tmp_path)
    assert whole.version == again.version
    assert math.isfinite(whole.record.last_loss)
    other = learn_slider(tiny, "disc", "haze", pairs[:5], QUICK, tmp_path / "other")
    assert other.version != whole.version
    assert (whole.record.pairs, other.record.pairs) == (10, 5)
    assert whole.record.pairs_version != other.record.pairs_version


def samples(shift: str = "haze") -> list[Sample]:
    image = scene("disc", 0, 1)
    clean = Sample("a", ArrayRef(image), 0)
    return [
        clean,
        *(
            Sample("a", ArrayRef(to_uint8(hazed(image, s, "a"))), 0, shift=shift, setting=Setting(s))
            for s in (1.0, 2.0)
        ),
        Sample("b", ArrayRef(image), 0, shift=shift, setting=Setting(4.0)),
    ]


def test_pairs_share_their_sample_and_know_their_strength() -> None:
    """A shifted image without its clean one is no pair; the highest severity of pairs is strength 1."""
    found = pairs_of(samples(), "haze", 16)
    assert sorted(pair.strength for pair in found) == [0.5, 1.0]
    for pair in found:
        np.testing.assert_array_equal(pair.before, scene("disc", 0, 1))
        assert np.abs(pair.after.astype(float) - pair.before).mean() > 10


def test_what_cannot_be_learnt_is_refused(tiny: Pipe, tmp_path: Path) -> None:
    image = scene("disc", 0, 1)
    for wrong in (0.0, 1.5):
        with pytest.raises(SoritesError, match="strength"):
            Pair(image, image, wrong)
    with pytest.raises(SoritesError, match="sizes"):
        Pair(image, image[:8])
    with pytest.raises(SoritesError, match="pairs"):
        learn_slider(tiny, "disc", "haze", [], QUICK, tmp_path / "state")
    with pytest.raises(UnknownName):
        pair_recipe("mine")
    with pytest.raises(SoritesError, match="start"):
        PairRecipe(start=0)
    disc = Concept(0, "disc")
    with pytest.raises(SoritesError, match="haze"):
        learn_sliders(tiny, [disc], samples(), {disc: 0}, ["smog"], QUICK, tmp_path / "out")
    cross = Concept(3, "cross")
    with pytest.raises(SoritesError, match="no pair of images of cross"):
        learn_sliders(tiny, [disc, cross], samples(), {disc: 0, cross: 3}, ["haze"], QUICK, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_predicted_image_of_a_flow_is_the_closed_form(tmp_path: Path) -> None:
    import torch

    pipe, draw = load(write_folder("sd3", tmp_path / "sd3")), torch.Generator().manual_seed(0)
    image, noise = (torch.randn(2, 16, 8, 8, generator=draw) for _ in range(2))
    times = torch.tensor([100, 700])
    noisy, target = add_noise(pipe, image, noise, times)
    assert image_error(pipe, noisy, target, image, times).abs().max() < 1e-5
    assert image_error(pipe, noisy, target, image + 1, times).mean() == pytest.approx(-1, abs=1e-5)
    recipe = replace(QUICK, layers="attention", prompt="{class}")
    slider = learn_slider(pipe, "disc", "haze", haze_pairs("disc", 2, 3), recipe, tmp_path / "state")
    assert all(float(up.abs().max()) > 0 for _, up in slider.lows.values()), "every layer learns"


@pytest.mark.slow
def test_a_slider_from_pairs_draws_the_haze_it_was_shown(tmp_path: Path) -> None:
    """On images that the toy pipeline draws: nearer to real haze on the same image than a third of its change."""
    pipe, disc, levels = load("toy"), Concept(0, "disc"), core.shift("haze").levels
    found = []
    for number in range(8):
        image = scene("disc", number, 31)
        found.append(Sample(f"{number}", ArrayRef(image), 0))
        found += [
            Sample(
                f"{number}",
                ArrayRef(to_uint8(hazed(image, s, f"{number}"))),
                0,
                shift="haze",
                setting=Setting(s),
            )
            for s in levels
        ]
    recipe = replace(TOY_PAIRS, steps=80)
    learn_sliders(pipe, [disc], found, {disc: 0}, ["haze"], recipe, tmp_path, SamplerOptions(20, 2.0))
    slider = shelf(tmp_path).slider(pipe, "haze", disc)
    how, shares = SamplerOptions(20, 2.0, negative=""), [s / levels[-1] for s in levels]
    drawn = sample(pipe, [along("a picture of a disc", seed, slider, (0.0, *shares)) for seed in (1, 2)], how)
    errors, changes = [], []
    for clean, *moved in drawn:
        for image, severity in zip(moved, levels, strict=True):
            wanted = hazed(to_uint8(clean), severity, "drawn")
            errors.append(np.sqrt(np.square(image - wanted).mean()))
            changes.append(np.sqrt(np.square(clean - wanted).mean()))
    assert np.mean(errors) < np.mean(changes) / 3
