"""The digital set against Pillow's enhancements and Kornia's colours."""

import kornia
import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats

from sorites.core.errors import SoritesError
from sorites.training import Digital
from sorites.training.augment import digital


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)


def batch(image):
    return torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255


def values(made):
    return made[0].permute(1, 2, 0).numpy() * 255


def factor(value):
    return torch.full((1, 1, 1, 1), value)


@pytest.mark.parametrize("by", [0.5, 0.9, 1.4])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (digital.brightened, ImageEnhance.Brightness),
        (digital.contrasted, ImageEnhance.Contrast),
        (digital.saturated, ImageEnhance.Color),
    ],
)
def test_jitter_is_pillows_enhancement(ours, theirs, by, image):
    wanted = np.asarray(theirs(Image.fromarray(image)).enhance(by))
    assert np.abs(values(ours(batch(image), factor(by))) - wanted).max() <= 1.6


@pytest.mark.parametrize("turn", [-0.05, 0.02, 0.3])
def test_hue_is_kornias(turn, image):
    wanted = kornia.enhance.adjust_hue(batch(image), 2 * np.pi * turn)
    assert (digital.hue_turned(batch(image), factor(turn)) - wanted).abs().max() < 1e-4


def test_a_turn_of_nothing_and_grey_stay(image):
    assert (digital.hue_turned(batch(image), factor(0.0)) - batch(image)).abs().max() < 1e-6
    grey = torch.full((1, 3, 4, 4), 0.3)
    assert torch.equal(digital.hue_turned(grey, factor(0.2)), grey)


@pytest.mark.parametrize("threshold", [0, 1, 192, 256])
def test_solarizing_is_pillows(threshold, image):
    wanted = np.asarray(ImageOps.solarize(Image.fromarray(image), threshold))
    assert np.abs(values(digital.solarized(batch(image), torch.tensor(threshold))) - wanted).max() < 1e-3


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_posterizing_is_pillows(bits, image):
    wanted = np.asarray(ImageOps.posterize(Image.fromarray(image), bits))
    assert np.abs(values(digital.posterized(batch(image), torch.tensor(bits))) - wanted).max() < 1e-3


def test_how_often_values_are_inverted_and_bits_lost():
    """On a field of one bright grey, which jitter that is switched off leaves alone, each fate can
    be read from the value.
    """
    moves = Digital(brightness=0, contrast=0, saturation=0, hue=0)
    moves.seed(0)
    made = torch.round(moves(torch.full((20_000, 3, 1, 1), 200 / 255))[:, 0, 0, 0] * 255)
    counts = [(made == value).sum().item() for value in (200, 55, 192, 0)]
    assert sum(counts) == 20_000
    expected = np.array([0.7 * 0.9, 0.3 * 0.9, 0.7 * 0.1, 0.3 * 0.1]) * 20_000
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_brightness_is_uniform_in_its_range():
    moves = Digital(contrast=0, saturation=0, hue=0, solarize=0, posterize=0)
    moves.seed(0)
    made = moves(torch.full((20_000, 3, 1, 1), 0.5))[:, 0, 0, 0].double() / 0.5
    assert stats.kstest(made.numpy(), stats.uniform(0.875, 0.25).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hue": 0.6}, "hue"),
        ({"solarize": 2}, "solarize"),
        ({"bits": 9}, "bits"),
        ({"threshold": 0.5}, "threshold"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(SoritesError, match=said):
        Digital(**options)
