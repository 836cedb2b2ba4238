"""Fitting images to a model, against torchvision's Resize and CenterCrop on the same Pillow images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pil

from sorites.core import ImageU8
from sorites.core.compute.torch_tools import import_torchvision
from sorites.core.errors import SoritesError
from sorites.io import resizing
from sorites.io.resizing import fit
from sorites.models.preprocess import Input


def image(height: int, width: int) -> ImageU8:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(
    "shape", [(300, 451), (451, 300), (37, 90), (512, 512), (100, 100), (225, 224), (1024, 33)]
)
@pytest.mark.parametrize(
    ("size", "crop_pct", "filter"), [(224, 0.875, "bicubic"), (240, 0.9, "bilinear"), (97, 1.0, "lanczos")]
)
def test_equals_torchvision_to_the_bit(
    shape: tuple[int, int], size: int, crop_pct: float, filter: str
) -> None:
    import_torchvision()
    from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

    peer = Compose([Resize(int(size / crop_pct), InterpolationMode(filter)), CenterCrop(size)])
    given = image(*shape)
    ours = fit(given, False, (size, size), crop_pct, filter)  # type: ignore[arg-type]
    assert np.array_equal(ours, np.asarray(peer(Pil.fromarray(given))))


def test_a_huge_one_is_scaled_only_where_it_is_kept() -> None:
    """The same pixels but for the order of Pillow's two passes."""
    given = np.repeat(np.repeat(image(4, 400), 8, axis=0), 8, axis=1)[:12]
    whole = np.asarray(Pil.fromarray(given).resize((given.shape[1] * 32 // 12, 32), Pil.Resampling.BICUBIC))
    left = round((whole.shape[1] - 28) / 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resizing, "MAX_RESIZED_PIXELS", 1)
        made = fit(given, False, (28, 28))
    assert np.abs(made.astype(int) - whole[2:30, left : left + 28]).max() <= 2


@given(st.integers(1, 300), st.integers(1, 300), st.booleans(), st.sampled_from([(24, 24), (17, 31)]))
@settings(max_examples=60, deadline=None)
def test_any_size_comes_out_at_the_models(
    height: int, width: int, framed: bool, size: tuple[int, int]
) -> None:
    made = fit(image(height, width), framed, size)
    assert made.shape == (*size, 3)
    assert made.dtype == np.uint8


@pytest.mark.parametrize("shape", [(1, 1), (1, 100_000), (100_000, 1), (2, 3)])
@pytest.mark.parametrize("framed", [True, False])
def test_the_thinnest_images_cost_little(shape: tuple[int, int], framed: bool) -> None:
    flat = np.full((*shape, 3), 77, np.uint8)
    assert (fit(flat, framed, (224, 224)) == 77).all()


def test_the_right_size_is_returned_untouched() -> None:
    given = image(224, 224)
    assert fit(given, True, (224, 224)) is given
    assert fit(given, False, (224, 224)) is given


def test_a_framed_image_keeps_its_corners_and_an_unframed_one_loses_them() -> None:
    given = np.zeros((256, 256, 3), np.uint8)
    given[:16], given[:, :16] = 255, 255
    assert fit(given, True, (224, 224))[:8].min() > 200
    assert fit(given, False, (224, 224)).max() < 30


def test_squash_keeps_what_centre_crops_away() -> None:
    given = np.zeros((100, 300, 3), np.uint8)
    given[:, :40] = 255
    assert fit(given, False, (64, 64), crop_pct=1.0, mode="squash")[:, :4].min() > 200
    assert fit(given, False, (64, 64), crop_pct=1.0).max() < 30


def test_input_reads_one_number_as_a_square() -> None:
    assert Input.read({"size": 96}, "x").size == (96, 96)


@pytest.mark.parametrize(
    "config",
    [
        {"size": 0},
        {"mean": [0.5]},
        {"std": [0, 1, 1]},
        {"crop_pct": 1.5},
        {"filter": "cubic"},
        {"colour": "RGB"},
    ],
)
def test_a_wrong_config_is_reported(config: dict[str, object]) -> None:
    with pytest.raises(
        SoritesError, match=rf"model\.json: (unknown key ')?{next(iter(config))}.*The keys are size, mean"
    ):
        Input.read(config, "model.json")
