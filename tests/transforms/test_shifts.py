"""Shifts as transforms: types, severities, seeds, loaders, and the wrapper that needs no library."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import sorites
from sorites import transforms
from sorites.core import SHIFTS
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import rng_for
from sorites.training import OpticsAugment
from sorites.transforms import Coma, as_maite, shift_transform


def image(seed: int = 0, side: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def test_every_shift_has_a_name_here() -> None:
    names = [name for name in dir(transforms) if name[:1].isupper()]
    assert len(names) == len(SHIFTS.names())
    assert "DefocusDisk" in names
    with pytest.raises(AttributeError, match="Coma"):
        transforms.Comma  # noqa: B018
    with pytest.raises(UnknownName):
        shift_transform("comma")


def test_a_fixed_severity_is_the_shift_itself() -> None:
    """Coma draws its direction from the image, so a shift without draws is compared with its definition."""
    given = image().astype(np.float32) / 255
    for name in ("defocus_disk", "contrast"):
        moved = shift_transform(name, severity=0.4)(given)
        assert moved.dtype == np.float32
        expected = sorites.shift(name)(given, 0.4, rng_for(0, "x", name))
        np.testing.assert_allclose(moved, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_a_range_draws_severities_uniformly(dtype: type) -> None:
    drawn = []
    probe = shift_transform("brightness", severity=(0.1, 0.3)).augmentation
    for number in range(400):
        probe.seed(0, number)
        drawn += probe._drawn_settings(1)
    assert 0.1 <= min(drawn) < 0.105
    assert 0.295 < max(drawn) <= 0.3
    assert abs(np.mean(drawn) - 0.2) < 4 * 0.2 / np.sqrt(12 * 400)
    given = image() if dtype is np.uint8 else image().astype(dtype) / 255
    moved = Coma(severity=(0, 3))(given)
    assert (moved.dtype, moved.shape) == (given.dtype, given.shape)


@pytest.mark.parametrize("severity", [-1, (2, 1), (0, 1, 2), "3", (0, np.inf), True])
def test_other_severities_are_refused(severity: object) -> None:
    with pytest.raises(SoritesError, match="severity"):
        Coma(severity=severity)


def test_a_severity_of_a_shift_without_one_is_refused() -> None:
    with pytest.raises(SoritesError, match="settings"):
        transforms.Camera(severity=1)
    with pytest.raises(SoritesError, match="both"):
        Coma(severity=1, settings=[1.0])


class Images(Dataset):
    def __init__(self, transform: object) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.transform(torch.from_numpy(image(place)).permute(2, 0, 1))


def test_workers_change_nothing_and_epochs_and_seeds_do() -> None:
    transform = transforms.GaussianNoise(severity=(0.05, 0.2))
    alone = torch.cat(list(DataLoader(Images(transform), batch_size=3)))
    beside = torch.cat(list(DataLoader(Images(transform), batch_size=5, num_workers=2)))
    assert torch.equal(alone, beside)
    assert np.array_equal(pickle.loads(pickle.dumps(transform))(image(0)), transform(image(0)))
    other = torch.cat(list(DataLoader(Images(transforms.GaussianNoise(severity=(0.05, 0.2), seed=1)))))
    transform.set_epoch(1)
    assert not torch.equal(alone, other)
    assert not torch.equal(alone, torch.cat(list(DataLoader(Images(transform)))))


def test_maite_batches_are_seeded_by_the_id_of_a_datum() -> None:
    augment = as_maite(transforms.GaussianNoise(severity=0.1))
    chw = [np.moveaxis(image(n), -1, 0) for n in range(3)]
    ids = [{"id": n} for n in range(3)]
    together, targets, metadata = augment((chw, ["a", "b", "c"], ids))
    alone, _, _ = augment(([chw[2]], ["c"], [{"id": 2}]))
    assert np.array_equal(together[2], alone[0])
    assert (targets, metadata) == (["a", "b", "c"], ids)
    assert (together[0].shape, together[0].dtype) == ((3, 32, 32), np.uint8)
    tensor, _, _ = augment(([torch.from_numpy(chw[2])], ["c"], [{"id": 2}]))
    assert np.array_equal(tensor[0].numpy(), together[2])

    class Boxes:
        boxes = np.zeros((1, 4))

    assert as_maite(OpticsAugment(scaled=4))(([chw[0]], [Boxes()], [{"id": 0}]))
    mover = next(name for name in SHIFTS.names() if sorites.shift(name).moves_objects)
    with pytest.raises(SoritesError, match="moves objects"):
        as_maite(shift_transform(mover))(([chw[0]], [Boxes()], [{"id": 0}]))


def test_a_pillow_image_stays_one() -> None:
    moved = Coma(severity=2)(Image.fromarray(image()))
    assert isinstance(moved, Image.Image)
    assert np.array_equal(np.asarray(moved), Coma(severity=2)(image()))
