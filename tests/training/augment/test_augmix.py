"""AugMix is the original's: its nine operations by Pillow itself, its draws, and its loss."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from scipy import stats
from torch.nn import functional

from sorites.core.errors import SoritesError
from sorites.training import AugMix, AugMixReleased, jsd_loss
from sorites.training.augment import augmix


@pytest.fixture(scope="module")
def image():
    smooth = np.random.default_rng(3).random((6, 6, 3))
    return Image.fromarray((smooth * 200 + 20).astype(np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)


def moved(image, matrix):
    return image.transform((32, 32), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


ORIGINAL = {
    "autocontrast": lambda p: ImageOps.autocontrast(p),
    "equalize": lambda p: ImageOps.equalize(p),
    "posterize": lambda p: ImageOps.posterize(p, 3),
    "rotate": lambda p: p.rotate(-8, Image.Resampling.BILINEAR),
    "solarize": lambda p: ImageOps.solarize(p, 185),
    "shear_x": lambda p: moved(p, (1, -0.084, 0, 0, 1, 0)),
    "shear_y": lambda p: moved(p, (1, 0, 0, -0.084, 1, 0)),
    "translate_x": lambda p: moved(p, (1, 0, -2, 0, 1, 0)),
    "translate_y": lambda p: moved(p, (1, 0, 0, 0, 1, -2)),
}
"""What the original does at the level 2.8 with a minus, worked out by hand: int(2.8 x 4 / 10) = 1,
int(8.4) = 8, int(71.68) = 71, 0.3 x 0.28 = 0.084, int(2.8 x 32 / 3 / 10) = 2.
"""


MOVING = [augmix.rotate, augmix.shear_x, augmix.shear_y, augmix.translate_x, augmix.translate_y]


@pytest.mark.parametrize("operation", MOVING, ids=lambda o: o.__name__)
def test_pixels_from_outside_have_the_fill_of_released_code(operation, image):
    """Pillow reads ``fillcolor=128`` of an RGB image as dark red."""
    calls = {
        "rotate": lambda p: p.rotate(-8, Image.Resampling.BILINEAR, fillcolor=128),
        "shear_x": lambda p: filled(p, (1, -0.084, 0, 0, 1, 0)),
        "shear_y": lambda p: filled(p, (1, 0, 0, -0.084, 1, 0)),
        "translate_x": lambda p: filled(p, (1, 0, -2, 0, 1, 0)),
        "translate_y": lambda p: filled(p, (1, 0, 0, 0, 1, -2)),
    }
    made = operation(np.asarray(image), 2.8, -1, (128, 0, 0))
    assert np.array_equal(made, np.asarray(calls[operation.__name__](image)))
    assert (made == (128, 0, 0)).all(-1).any()


def filled(image, matrix):
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=128
    )


def test_a_fill_has_three_values():
    with pytest.raises(SoritesError, match="three integers"):
        augmix.AugMix(fill=(128, 0))


@pytest.mark.parametrize("operation", augmix.OPERATIONS, ids=lambda o: o.__name__)
def test_operations_are_those_of_the_original(operation, image):
    made = operation(np.asarray(image), 2.8, -1)
    assert np.array_equal(made, np.asarray(ORIGINAL[operation.__name__](image)))
    assert not np.array_equal(made, np.asarray(image))
    assert len(ORIGINAL) == len(augmix.OPERATIONS) == 9


def levelled(level, sign, width, height):
    """The original's calls of Pillow at a level and a sign."""

    def affine(*matrix):
        return lambda p: p.transform(
            (width, height), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
        )

    return {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "posterize": lambda p: ImageOps.posterize(p, 4 - int(level * 4 / 10)),
        "rotate": lambda p: p.rotate(sign * int(level * 30 / 10), Image.Resampling.BILINEAR),
        "solarize": lambda p: ImageOps.solarize(p, 256 - int(level * 256 / 10)),
        "shear_x": affine(1, sign * float(level) * 0.3 / 10, 0, 0, 1, 0),
        "shear_y": affine(1, 0, 0, sign * float(level) * 0.3 / 10, 1, 0),
        "translate_x": affine(1, 0, sign * int(level * (width / 3) / 10), 0, 1, 0),
        "translate_y": affine(1, 0, 0, 0, 1, sign * int(level * (height / 3) / 10)),
    }


@pytest.mark.parametrize("operation", augmix.OPERATIONS, ids=lambda o: o.__name__)
@pytest.mark.parametrize("kind", ["noise", "few values", "one value", "dark", "tiny"])
def test_operations_are_pillows_at_every_level_on_odd_images(operation, kind):
    rng = np.random.default_rng(len(kind))
    shape = (3, 5, 3) if kind == "tiny" else (30, 41, 3)
    most = {"few values": 3, "one value": 1, "dark": 60}.get(kind, 256)
    given = rng.integers(0, most, shape, dtype=np.uint8) + np.uint8(90 if kind == "few values" else 0)
    for level in (0.1, 1.7, 3.0, 6.4, 9.99):
        for sign in (-1, 1):
            calls = levelled(level, sign, shape[1], shape[0])
            wanted = np.asarray(calls[operation.__name__](Image.fromarray(given)))
            assert np.array_equal(operation(given, level, sign), wanted), (level, sign)


def batch(image, number=1):
    one = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
    return one[None].expand(number, -1, -1, -1).contiguous()


def test_the_mixture_is_the_weighted_sum_of_its_chains(image):
    mixes = AugMix(severity=3, width=3)
    mixes.seed("fixed")
    shares = mixes.dirichlet(2, 3)
    lengths = mixes.whole(2, 3, below=3) + 1
    kinds = mixes.whole(2, 3, 3, below=9)
    levels = mixes.uniform(2, 3, 3, low=0.1, high=3)
    signs = mixes.whole(2, 3, 3, below=2) * 2 - 1
    wanted = np.zeros((2, 32, 32, 3))
    for n in range(2):
        for chain in range(3):
            made = np.asarray(image)
            for step in range(lengths[n, chain]):
                made = augmix.OPERATIONS[kinds[n, chain, step]](
                    made, float(levels[n, chain, step]), int(signs[n, chain, step])
                )
            wanted[n] += float(shares[n, chain]) * made / 255
    mixes.seed("fixed")
    assert np.abs(mixes.chains(batch(image, 2)).permute(0, 2, 3, 1).numpy() - wanted).max() < 1e-6


def test_the_released_code_sums_normalised_images_after_every_operation(image):
    """The released loop on the same draws: norm(x') = (1 - m) norm(x) + m sum over chains and steps of w norm(x_step)."""
    mixes, mean, std = AugMixReleased(), np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    mixes.seed("fixed")
    m = float(mixes.weights(1)[0])
    shares, lengths = mixes.dirichlet(1, 3)[0], mixes.whole(1, 3, below=3)[0] + 1
    kinds, levels = mixes.whole(1, 3, 3, below=9)[0], mixes.uniform(1, 3, 3, low=0.1, high=3)[0]
    signs = mixes.whole(1, 3, 3, below=2)[0] * 2 - 1
    mix, norm = 0, lambda pixels: (pixels / 255 - mean) / std
    for chain in range(3):
        made = np.asarray(image)
        for step in range(lengths[chain]):
            made = augmix.OPERATIONS[kinds[chain, step]](
                made, float(levels[chain, step]), int(signs[chain, step])
            )
            mix = mix + float(shares[chain]) * norm(made)
    wanted = (1 - m) * norm(np.asarray(image)) + m * mix
    mixes.seed("fixed")
    normalised = (mixes(batch(image))[0].permute(1, 2, 0).numpy() - mean) / std
    assert np.abs(normalised - wanted).max() < 1e-5
    assert np.abs(normalised).max() > np.abs(norm(np.asarray(image))).max()


def test_the_image_is_mixed_in_by_beta(image):
    mixes, images = AugMix(), batch(image, 3)
    mixes.seed(0)
    chains = mixes.chains(images)
    mixes.seed(0)
    made = mixes.mix(images, torch.tensor([0.0, 0.5, 1.0]))
    assert torch.equal(made[0], images[0])
    assert (made[1] - (images[1] + chains[1]) / 2).abs().max() < 1e-6
    assert (made[2] - chains[2]).abs().max() < 1e-6


def test_shares_of_chains_are_dirichlet_and_weights_uniform():
    mixes = AugMix()
    mixes.seed(2)
    assert stats.kstest(mixes.dirichlet(20_000, 3)[:, 1].numpy(), stats.beta(1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(mixes.weights(20_000).numpy(), "uniform").pvalue > 1e-3


def test_a_fixed_depth_is_kept(image, monkeypatch):
    calls = []
    counted = tuple(
        lambda p, level, sign, fill, o=o: calls.append(o) or o(p, level, sign) for o in augmix.OPERATIONS
    )
    monkeypatch.setattr("sorites.training.augment.augmix.OPERATIONS", counted)
    AugMix(depth=5, width=2)(batch(image, 3))
    assert len(calls) == 5 * 2 * 3
    calls.clear()
    AugMix()(batch(image, 200))
    assert abs(len(calls) - 200 * 3 * 2) < 4 * (600 * 2 / 3) ** 0.5


def test_views_are_the_images_and_two_mixtures(image):
    mixes, images = AugMix(), batch(image, 4)
    clean, one, other = mixes.views(images)
    assert clean is images
    assert not torch.equal(one, other)
    assert not torch.equal(one, images)


def test_the_loss_is_cross_entropy_and_divergence_as_written_in_the_paper():
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(12, 5, generator=draw, dtype=torch.float64), torch.tensor([0, 3, 2, 4])
    shares = np.exp(stats.zscore(logits.numpy(), axis=None) * 0 + logits.numpy())
    shares = (shares / shares.sum(1, keepdims=True)).reshape(3, 4, 5)
    divergence = np.mean([stats.entropy(share, shares.mean(0), axis=1) for share in shares])
    wanted = functional.cross_entropy(logits[:4], labels).item() + 12 * divergence
    assert jsd_loss(logits, labels).item() == pytest.approx(wanted, rel=1e-9)
    assert jsd_loss(list(logits.chunk(3)), labels).item() == pytest.approx(wanted, rel=1e-9)
    alike = logits[:4].repeat(3, 1)
    assert jsd_loss(alike, labels).item() == pytest.approx(
        functional.cross_entropy(logits[:4], labels).item()
    )


def test_a_loss_of_two_views_is_refused():
    with pytest.raises(SoritesError, match="of three views of 2 images"):
        jsd_loss(torch.zeros(4, 5), torch.zeros(2, dtype=torch.int64))


def test_normalised_images_are_refused():
    with pytest.raises(SoritesError, match="values from -2 to 2. Augment"):
        AugMix()(torch.tensor([-2.0, 2.0]).repeat(96)[None, :, None].reshape(1, 3, 8, 8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"severity": 11}, "from 0.1 to 10, got 11"),
        ({"width": 0}, "width"),
        ({"depth": 0}, "or -1 for 1 to 3 at random"),
        ({"alpha": -1}, "alpha"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    with pytest.raises(SoritesError, match=said):
        AugMix(**options)
