"""One image at a time, whatever worker of a data loader asks."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset

from sorites.core.errors import SoritesError
from sorites.training import AugMix, ImageTransform, OpticsAugment
from sorites.training.augment import Flip, NoAugment


def image(seed=0):
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


class Images(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, place):
        return self.transform(image(place))


KINDS = {
    "array": lambda p: p,
    "pillow": Image.fromarray,
    "tensor": lambda p: torch.from_numpy(p).permute(2, 0, 1),
    "floats": lambda p: torch.from_numpy(p).permute(2, 0, 1).float() / 255,
}


def as_bytes(obj):
    if isinstance(obj, torch.Tensor):
        obj = obj.permute(1, 2, 0).numpy()
        return obj if obj.dtype == np.uint8 else np.floor(obj * 255 + 0.5).astype(np.uint8)
    return np.asarray(obj)


@pytest.mark.parametrize("kind", KINDS)
def test_a_image_comes_back_as_what_it_was(kind):
    given = KINDS[kind](image())
    same = ImageTransform(NoAugment())(given)
    assert type(same) is type(given)
    assert getattr(same, "dtype", None) == getattr(given, "dtype", None)
    assert np.array_equal(as_bytes(same), image())
    moved = ImageTransform(OpticsAugment(scaled=4))(given, key="k")
    assert np.array_equal(as_bytes(moved), ImageTransform(OpticsAugment(scaled=4))(image(), key="k"))
    assert not np.array_equal(as_bytes(moved), image())


@pytest.mark.parametrize("moves", [OpticsAugment(scaled=4), AugMix()], ids=["optics", "augmix"])
def test_workers_and_where_a_loader_goes_on_change_nothing(moves):
    alone = torch.cat(list(DataLoader(Images(ImageTransform(moves)), batch_size=4)))
    beside = torch.cat(list(DataLoader(Images(ImageTransform(moves)), batch_size=5, num_workers=2)))
    rest = torch.cat(list(DataLoader(Subset(Images(ImageTransform(moves)), range(7, 12)), batch_size=2)))
    assert torch.equal(alone, beside)
    assert torch.equal(alone[7:], rest)
    assert len(torch.unique((alone.double().mean((1, 2, 3)) * 1e6).long())) == 12


def test_epochs_draw_anew_and_running_workers_see_them():
    transform = ImageTransform(OpticsAugment(scaled=4))
    loader = DataLoader(Images(transform), batch_size=4, num_workers=2, persistent_workers=True)
    epochs = []
    for epoch in (0, 1, 0):
        transform.set_epoch(epoch)
        epochs.append(torch.cat(list(loader)))
    assert torch.equal(epochs[0], epochs[2])
    assert not torch.equal(epochs[0], epochs[1])


def test_a_seed_decides_and_pickling_keeps_it():
    first = ImageTransform(AugMix(), seed=1)
    first.set_epoch(3)
    again = pickle.loads(pickle.dumps(first))
    assert np.array_equal(first(image()), again(image()))
    assert not np.array_equal(first(image()), ImageTransform(AugMix(), seed=2)(image()))


@pytest.mark.parametrize(
    "given",
    [np.zeros((8, 8), np.uint8), np.zeros((8, 8, 3)), torch.zeros(8, 8, 3), "x.png", Image.new("L", (8, 8))],
)
def test_what_is_no_image_is_refused(given):
    with pytest.raises(SoritesError, match="RGB image"):
        ImageTransform(Flip())(given)


def test_what_is_no_augmentation_is_refused():
    with pytest.raises(SoritesError, match="OpticsAugment.*got Identity"):
        ImageTransform(torch.nn.Identity())
