"""OpticsAugment is our shift at a drawn mode, mixed by a drawn weight."""

import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from sorites.core import shift
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import rng_for
from sorites.shifts.aberration import PAIRS, WAVES
from sorites.training import OpticsAugment
from sorites.training.augment import optics

NAME_OF = {mode: name for name, pair in PAIRS.items() for mode in pair}


def shifted(image, mode, severity, **options):
    """Blur by the shift of the mode's pair, with a generator that draws this mode of the two."""
    blur = shift(NAME_OF[mode], padding="reflect", **options)
    for trial in range(64):
        rng = rng_for(0, str(trial), "mode")
        if blur.chosen_params(image, severity, rng)["zernike"] == mode:
            return blur(image, severity, rng)
    raise AssertionError(mode)


def batch(images):
    return torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())


def images_of(number, height, width):
    return np.random.default_rng(height).random((number, height, width, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("height", "width", "options"),
    [(224, 224, {}), (40, 57, {}), (9, 14, {}), (32, 32, {"scaled": 4})],
    ids=["224 px", "40 x 57", "smaller than the kernel", "scaled"],
)
def test_every_mode_equals_our_shift(height, width, options):
    moves = OpticsAugment(severity=3, **options)
    images = images_of(len(WAVES), height, width)
    made = moves.blur.mixed(batch(images), torch.arange(len(WAVES)), torch.ones(len(WAVES)))
    wanted = batch([shifted(image, mode, 3, **options) for image, mode in zip(images, WAVES, strict=True)])
    assert [mode for mode, _ in moves.kernels] == list(WAVES)
    assert (made - wanted).abs().max() < 1e-5


def test_severities_are_drawn_too_and_each_is_our_shift():
    moves = OpticsAugment(severity=[1, 5], scaled=4)
    assert moves.kernels[:3] == [(4, 1.0), (4, 5.0), (5, 1.0)]
    image = images_of(1, 32, 32)[0]
    for place in (1, 14):
        mode, severity = moves.kernels[place]
        made = moves.blur.mixed(batch([image]), torch.tensor([place]), torch.ones(1))
        assert (made - batch([shifted(image, mode, severity, scaled=4)])).abs().max() < 1e-5


def test_the_published_stack_can_be_given(tmp_path):
    stack = np.zeros((8, 5, 3, 25, 25), np.float32)
    stack[..., 12, 13] = 1
    np.save(tmp_path / "stack.npy", stack)
    moves = OpticsAugment(kernels=str(tmp_path / "stack.npy"))
    image = batch(images_of(1, 32, 32))
    made = moves.mix(image, torch.ones(1))
    assert (made[..., :-1] - image[..., 1:]).abs().max() < 1e-5


def test_a_weight_mixes_image_and_blur():
    moves, images = OpticsAugment(scaled=4), batch(images_of(3, 32, 32))
    choice, weights = torch.tensor([0, 3, 7]), torch.tensor([0.0, 0.25, 1.0])
    blurred = moves.blur.mixed(images, choice, torch.ones(3))
    made = moves.blur.mixed(images, choice, weights)
    assert (made - torch.lerp(images, blurred, weights[:, None, None, None])).abs().max() < 1e-6
    assert (made[0] - images[0]).abs().max() < 1e-6


@pytest.mark.parametrize("side", [32, 48])
def test_both_ways_to_blur_are_one(side, monkeypatch):
    moves, images = OpticsAugment(), batch(images_of(6, side, side))
    choice, weights = torch.arange(6), torch.linspace(0, 1, 6)
    by_fft = moves.blur.mixed(images, choice, weights)
    monkeypatch.setattr(optics, "MAX_DIRECT_SIDE", 25)
    assert (moves.blur.mixed(images, choice, weights) - by_fft).abs().max() < 2e-6


def test_normalising_after_mixing_is_the_published_mixture_of_normalised_images():
    mean, std = (
        torch.tensor([0.485, 0.456, 0.406])[:, None, None],
        torch.tensor([0.229, 0.224, 0.225])[:, None, None],
    )
    moves, images = OpticsAugment(scaled=4), batch(images_of(8, 32, 32))
    weights = torch.linspace(0.1, 0.9, 8)
    blurred = moves.blur.mixed(images, torch.arange(8), torch.ones(8))
    published = torch.lerp((images - mean) / std, (blurred - mean) / std, weights[:, None, None, None])
    ours = (moves.blur.mixed(images, torch.arange(8), weights) - mean) / std
    assert (ours - published).abs().max() < 1e-5


def test_modes_are_uniform_and_weights_are_beta():
    moves = OpticsAugment(scaled=4)
    moves.seed(1)
    assert stats.chisquare(np.bincount(moves.choices(80_000), minlength=8)).pvalue > 1e-3
    assert stats.kstest(moves.weights(20_000).numpy(), "uniform").pvalue > 1e-3
    curved = OpticsAugment(scaled=4, alpha=0.4)
    curved.seed(1)
    assert stats.kstest(curved.weights(20_000).numpy().astype(float), stats.beta(0.4, 0.4).cdf).pvalue > 1e-3


def test_a_call_is_the_mixture_of_what_is_drawn_in_this_order():
    images = batch(images_of(4, 32, 32))
    moves = OpticsAugment(scaled=4)
    moves.seed("a")
    weights, choice = moves.weights(4), moves.choices(4)
    moves.seed("a")
    assert torch.equal(moves(images), moves.blur.mixed(images, choice, weights))


def test_only_the_latest_spectra_are_kept():
    moves = OpticsAugment()
    for side in (40, 64, 100):
        moves(torch.rand(2, 3, side, side))
    (size, _), kept = moves.blur._spectra
    assert size == (125, 125)
    assert kept.shape == (8, 3, 125, 63)


def test_a_pickle_holds_no_spectra():
    moves = OpticsAugment()
    before = len(pickle.dumps(moves))
    moves(torch.rand(1, 3, 128, 128))
    assert len(pickle.dumps(moves)) < before + 1000


@pytest.mark.parametrize("options", [{}, {"scaled": 4}], ids=["by FFT", "directly"])
def test_batches_stay_on_their_device(options):
    """The meta device holds no values, and refuses to be mixed with the CPU as any GPU does."""
    made = OpticsAugment(**options)(torch.rand(3, 3, 32, 32, device="meta"))
    assert made.device.type == "meta"
    assert made.shape == (3, 3, 32, 32)


@pytest.mark.parametrize(("least", "length"), [(1, 1), (7, 8), (44, 45), (248, 250), (241, 243), (127, 128)])
def test_fast_lengths_are_scipys(least, length):
    from scipy.fft import next_fast_len

    assert optics.fast_length(least) == length == next_fast_len(least, real=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"severity": 6}, "from 0 to 5"),
        ({"severity": "3"}, "got '3'"),
        ({"severity": []}, "got none"),
        ({"alpha": 0}, "a number above 0, got 0"),
        ({"scaled": 0.5}, "1 to 25"),
        ({"colours": "bgr"}, "rgb or rg, got 'bgr'"),
        ({"kernels": "there.npy", "scaled": 4}, "colours, centre and scaled"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(SoritesError, match=said):
        OpticsAugment(**options)


def test_the_shift_knows_its_options():
    with pytest.raises(UnknownName, match="Did you mean scaled"):
        shift("coma", scale=4)
