"""Augmenting a batch in parts: the numbers of the whole batch are drawn, so the parts are those of the whole."""

from __future__ import annotations

import pytest
import torch

from sorites.core.errors import SoritesError
from sorites.training.augment import Augmentation, AugMix, OpticsAugment
from sorites.training.augment.base import Chain, split
from sorites.training.augment.named import augmentation

NAMES = ["flip", "optics", "augmix", "cascade", "digital", "gaussian_noise", "augmix,optics", "optics,flip"]


def images(count: int, size: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_a_batch_are_those_of_the_whole(name: str) -> None:
    augment, batch = augmentation(name, 32), images(6)
    augment.seed(1, "step", 2)
    whole = augment(batch)
    parts = []
    for first, last in ((0, 1), (1, 4), (4, 6)):
        augment.seed(1, "step", 2)
        parts.extend(augment.of_rows(batch[first:last], first, 6)[0])
    torch.testing.assert_close(torch.stack(parts), whole, rtol=0, atol=2e-6)
    assert not torch.equal(whole, batch)


def test_parts_of_augmix_and_its_views_are_equal_to_the_bit() -> None:
    augment, batch = AugMix(24), images(5, 24)
    augment.seed(0)
    whole = augment.views(batch)
    for place in range(5):
        augment.seed(0)
        views = augment.of_rows(batch[place : place + 1], place, 5, views=True)
        for one, all_ in zip(views, whole, strict=True):
            assert torch.equal(one[0], all_[place])


def test_afterwards_a_batch_is_whole_again() -> None:
    augment, batch = OpticsAugment(32), images(4)
    augment.seed(0)
    before = augment(batch)
    with pytest.raises(SoritesError, match="32x32"):
        augment.of_rows(torch.zeros(1, 3, 8, 8), 0, 3)
    augment.seed(0)
    assert torch.equal(augment(batch), before)


@pytest.mark.parametrize(
    ("name", "in_loader", "on_device"),
    [
        ("optics", False, True),
        ("augmix", True, False),
        ("cascade", True, False),
        ("augmix,optics", True, True),
        ("optics,augmix", True, False),
        ("optics,flip", False, True),
    ],
)
def test_what_needs_the_cpu_runs_in_the_loader(name: str, in_loader: bool, on_device: bool) -> None:
    augment, batch = augmentation(name, 32), images(3)
    first, second = split(augment)
    assert (first is not None, second is not None) == (in_loader, on_device)
    augment.seed(4)
    whole = augment(batch)
    done = batch
    for half in (first, second):
        if half is not None:
            half.seed(4)
            (done,) = half.of_rows(done, 0, 3)
    torch.testing.assert_close(done, whole, rtol=0, atol=1e-6)


def test_halves_of_a_chain_keep_its_seeds() -> None:
    chain = augmentation("augmix,flip,optics", 32)
    assert isinstance(chain, Chain)
    first, second = chain.split()
    assert first is not None
    assert second is not None
    assert (first._span, second._span, chain._span) == ((0, 1), (1, 3), (0, 3))


class Shared(Augmentation):
    """Draws two numbers for all images together."""

    def augment(self, images: torch.Tensor) -> torch.Tensor:
        low, high = self.uniform(2).tolist()
        return images * (low + high) / 2


def test_numbers_for_all_images_are_drawn_once() -> None:
    augment, batch = Shared(), images(5, 8)
    augment.seed(0)
    whole = augment(batch)
    augment.seed(0)
    assert torch.equal(augment.of_rows(batch[3:4], 3, 5)[0], whole[3:4])
