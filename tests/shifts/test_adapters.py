"""Transforms of other libraries as shifts: the same pixels as the libraries, seeded per sample, in rising order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sorites
from sorites.core import SHIFTS, to_float
from sorites.core.errors import SoritesError

PEERS = "needs: pip install 'sorites[peers]'"
IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


class Darker:
    """A user's transform: 8-bit arrays in and out."""

    def __init__(self, by: int, jitter: float = 0.0) -> None:
        self.by, self.jitter = by, jitter

    def __call__(self, image: np.ndarray) -> np.ndarray:
        moved = image.astype(np.float64) - self.by + self.jitter * np.random.standard_normal(image.shape)  # noqa: NPY002
        return np.clip(moved, 0, 255).astype(np.uint8)


class Same:
    """A transform that ignores its parameter."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return image


def test_a_transform_of_user_code() -> None:
    name = f"transform:{__name__}:Darker?theta=by&values=0,10,20,40"
    assert name in SHIFTS
    shift = sorites.shift(name)
    assert (shift.levels, shift.unit) == ((10.0, 20.0, 40.0), "by")
    moved = shift(to_float(IMAGE), 15.0, np.random.default_rng(0))
    assert np.array_equal(moved, to_float(Darker(15)(IMAGE)))

    noisy = sorites.shift(f"{name}&jitter=5")
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr] # noqa: NPY002
    first, again, other = (noisy(to_float(IMAGE), 10.0, np.random.default_rng(i)) for i in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(np.random.get_state()[1], before)  # type: ignore[index,arg-type] # noqa: NPY002


@pytest.mark.parametrize("query", ["theta=by&values=40,20,10", "theta=by&values=0", "theta=by", "values=1", "theta=by&values=1,x", "theta=b&values=1,2"])  # fmt: skip
def test_a_wrong_spec_is_refused(query: str) -> None:
    with pytest.raises(SoritesError, match="transform:"):
        sorites.shift(f"transform:{__name__}:Darker?{query}")


def test_a_transform_that_changes_nothing_is_refused() -> None:
    with pytest.raises(SoritesError, match="must change the image more"):
        sorites.shift(f"transform:{__name__}:Same?theta=by&values=3")


def test_values_that_fall_are_numbered() -> None:
    shift = sorites.shift(f"transform:{__name__}:Darker?theta=by&values=-10,-20,-40&check=no")
    assert (shift.levels, shift.unit) == ((1.0, 2.0, 3.0), "level")
    moved = shift(to_float(IMAGE), 1.5, np.random.default_rng(0))
    assert np.array_equal(moved, to_float(Darker(-15)(IMAGE)))


@pytest.mark.slow
def test_torchvision_and_kornia() -> None:
    from sorites.core.compute.torch_tools import import_torchvision

    import_torchvision()
    import torch
    from kornia.augmentation import RandomGaussianNoise
    from torchvision.transforms import v2

    image = to_float(IMAGE)
    pixels = torch.from_numpy(image.transpose(2, 0, 1).copy())
    blur = sorites.shift(
        "transform:torchvision.transforms.v2:GaussianBlur?theta=sigma&values=0.5,1,2&kernel_size=13"
    )
    expected = v2.GaussianBlur(kernel_size=13, sigma=1.0)(pixels).numpy().transpose(1, 2, 0)
    assert np.array_equal(blur(image, 1.0, np.random.default_rng(0)), np.clip(expected, 0, 1))

    noise = sorites.shift("transform:kornia.augmentation:RandomGaussianNoise?theta=std&values=0.05,0.1,0.2")
    torch.manual_seed(int(np.random.default_rng(3).integers(2**31)))
    expected = RandomGaussianNoise(std=0.1, p=1.0)(pixels[None])[0].numpy().transpose(1, 2, 0)
    state = torch.get_rng_state()
    assert np.array_equal(noise(image, 0.1, np.random.default_rng(3)), np.clip(expected, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_albumentations() -> None:
    library = pytest.importorskip("albumentations", reason=PEERS)
    image = to_float(IMAGE)
    blur = sorites.shift(
        "transform:albumentations:GaussianBlur?theta=sigma_limit&values=0.5,1,2&pair=yes&blur_limit=0"
    )
    expected = library.GaussianBlur(sigma_limit=(2.0, 2.0), blur_limit=0, p=1.0)(image=IMAGE)["image"]
    assert np.array_equal(blur(image, 2.0, np.random.default_rng(0)), to_float(expected))
    noise = sorites.shift("transform:albumentations:GaussNoise?theta=std_range&values=0.05,0.1&pair=yes")
    first, again, other = (noise(image, 0.1, np.random.default_rng(i)) for i in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    quality = sorites.shift(
        "transform:albumentations:ImageCompression?theta=quality_range&values=90,50,10&pair=yes"
    )
    assert quality.levels == (1.0, 2.0, 3.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_nrtk(tmp_path: Path) -> None:
    pytest.importorskip("nrtk", reason=PEERS)
    from nrtk.impls.perturb_factory import PerturberStepFactory
    from nrtk.impls.perturb_image.photometric.blur import GaussianBlurPerturber
    from nrtk.impls.perturb_image.photometric.noise import GaussianNoisePerturber
    from smqtk_core.configuration import to_config_dict

    image, file = to_float(IMAGE), tmp_path / "f.json"
    blurs = PerturberStepFactory(
        perturber=GaussianBlurPerturber, theta_key="ksize", start=3, stop=9, step=2, to_int=True
    )
    file.write_text(json.dumps({"PerturbFactory": to_config_dict(blurs)}))
    shift = sorites.shift(f"nrtk:{file}")
    assert (shift.levels, shift.unit) == ((3.0, 5.0, 7.0), "ksize")
    assert np.array_equal(shift(image, 5.0, np.random.default_rng(0)), to_float(blurs[1](image=IMAGE)[0]))

    noises = PerturberStepFactory(
        perturber=GaussianNoisePerturber, theta_key="var", start=0.01, stop=0.05, step=0.01
    )
    file.write_text(json.dumps(to_config_dict(noises)))
    noise = sorites.shift(f"nrtk:{file}")
    first, again, other = (noise(image, 0.02, np.random.default_rng(i)) for i in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    seed = int(np.random.default_rng(1).integers(2**31))
    assert np.array_equal(first, to_float(GaussianNoisePerturber(var=0.02, seed=seed)(image=IMAGE)[0]))

    falling = PerturberStepFactory(
        perturber=GaussianNoisePerturber, theta_key="var", start=0.05, stop=0.01, step=-0.02
    )
    file.write_text(json.dumps(to_config_dict(falling)))
    with pytest.raises(SoritesError, match="must change the image more"):
        sorites.shift(f"nrtk:{file}")
    assert sorites.shift(f"nrtk:{file}?check=no").levels == (1.0, 2.0)
