"""The diffusion classifier: which classes drop out, what the logits are, and that nothing but the
image is drawn on.
"""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.core.samples import to_uint8
from sorites.diffusion import classify
from sorites.diffusion.classify import ClassifierOptions
from sorites.diffusion.classify import classify as judged
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.latents import add_noise, decode_latents, latents_of
from sorites.diffusion.pipeline import Pipe

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, (16, 16, 3), np.uint8) for _ in range(2)]
QUICK = ClassifierOptions(draws=6, first=2, sure=1.0)


@pytest.fixture(scope="module")
def words(tiny: Pipe) -> list[object]:
    return [encode_prompt(tiny, f"a picture of a {name}", "", 16) for name in ("disc", "square", "cross")]


def test_latents_come_back_as_the_image(tiny: Pipe) -> None:
    [back] = decode_latents(tiny, latents_of(tiny, IMAGES[:1]))
    assert np.abs(to_uint8(back).astype(int) - IMAGES[0]).max() <= 1


def test_noise_and_velocity_are_those_of_diffusers(tiny: Pipe) -> None:
    import torch

    latents, noise, times = torch.randn(3, 3, 16, 16), torch.randn(3, 3, 16, 16), torch.tensor([0, 500, 999])
    noisy, aim = add_noise(tiny, latents, noise, times)
    torch.testing.assert_close(noisy, tiny.parts.scheduler.add_noise(latents, noise, times))
    torch.testing.assert_close(aim, tiny.parts.scheduler.get_velocity(latents, noise, times))


def test_a_verdict_follows_from_the_image_alone(tiny: Pipe, words: list[object]) -> None:
    one, other, again = (judged(tiny, image, words, range(3), QUICK) for image in (*IMAGES, IMAGES[0]))
    assert np.array_equal(one.logits, again.logits)
    assert not np.array_equal(one.logits, other.logits)
    reversed_ = judged(tiny, IMAGES[0], words[::-1], range(3), ClassifierOptions(draws=6, sure=0))
    plain = judged(tiny, IMAGES[0], words, range(3), ClassifierOptions(draws=6, sure=0))
    np.testing.assert_allclose(reversed_.logits[::-1], plain.logits, atol=1e-5)


def test_the_error_is_that_of_the_network_written_out(tiny: Pipe, words: list[object]) -> None:
    import torch

    how = ClassifierOptions(draws=3, sure=0, loss="l2")
    latent = latents_of(tiny, IMAGES[:1])
    noise, times = classify._draws(latent, IMAGES[0], how)
    with torch.no_grad():
        noisy = tiny.parts.scheduler.add_noise(latent.expand_as(noise), noise, times)
        aim = tiny.parts.scheduler.get_velocity(latent.expand_as(noise), noise, times)
        said = tiny.parts.unet(noisy, times, words[1].prompt.expand(3, -1, -1)).sample  # type: ignore[attr-defined]
    found = judged(tiny, IMAGES[0], words, range(3), how)
    assert found.logits[1] == pytest.approx(-float(((said - aim) ** 2).mean()), rel=1e-4)
    assert found.passes == 9


def test_noise_steps_are_spread_over_the_range_at_every_prefix(tiny: Pipe) -> None:
    _, times = classify._draws(latents_of(tiny, IMAGES[:1]), IMAGES[0], ClassifierOptions(draws=64))
    for count in (4, 8, 16, 64):
        assert np.histogram(times[:count].numpy(), bins=4, range=(0, 1000))[0].tolist() == [count // 4] * 4


def test_only_those_surely_behind_drop_out() -> None:
    rng = np.random.default_rng(2)
    errors = rng.normal(1.0, 0.5, (8, 1)) + np.array([0.0, 0.001, 0.5]) + rng.normal(0, 0.01, (8, 3))
    assert classify._survivors(errors, np.arange(3), 3.0).tolist() == [0, 1]


def test_one_that_dropped_out_never_wins_and_keeps_its_paired_difference() -> None:
    errors = np.array([[1.0, 0.5, 1.4], [1.0, np.nan, 1.4], [1.0, np.nan, 1.4]])
    found = classify._verdict(errors, np.array([0, 2]), np.array([0, 1, 2]), 5)
    assert found.logits.argmax() == 0
    assert found.logits[1] < found.logits[2] < found.logits[0]
    assert found.draws.tolist() == [3, 1, 3]
    far = classify._verdict(np.array([[1.0, 3.0], [2.0, np.nan]]), np.array([0]), np.array([0, 1]), 3)
    assert far.logits[0] - far.logits[1] == pytest.approx(2.0)


def test_a_class_is_as_good_as_the_best_of_its_words() -> None:
    errors = np.array([[1.0, 0.2, 0.5, 0.6]] * 2)
    found = classify._verdict(errors, np.arange(4), np.array([0, 0, 1, 1]), 8)
    np.testing.assert_allclose(found.logits, [-0.2, -0.5])


def test_draws_stop_when_one_class_is_left(
    monkeypatch: pytest.MonkeyPatch, tiny: Pipe, words: list[object]
) -> None:
    monkeypatch.setattr(classify, "_survivors", lambda errors, alive, sure: alive[:1])
    found = judged(tiny, IMAGES[0], words, range(3), QUICK)
    assert found.passes == 2 * 3


@pytest.mark.parametrize(("name", "value"), [("draws", 0), ("loss", "l3"), ("first", 1), ("sure", -1.0)])
def test_what_cannot_be_judged_by_is_refused(name: str, value: object) -> None:
    with pytest.raises(SoritesError, match=f"^{name}: expected"):
        ClassifierOptions(**{name: value})  # type: ignore[arg-type]
