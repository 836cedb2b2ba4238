"""Batches: which images, in which order, and how they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.core import Generated, ImageU8, Sample
from sorites.core.compute.torch_tools import import_torchvision
from sorites.models.preprocess import Input
from sorites.training.batches import Batches, Prepared, random_crop
from sorites.training.images import SampleImages

SMALL = Input(size=(8, 8), crop_pct=1.0)


def image(number: int) -> ImageU8:
    return np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)


class Drawn:
    """Images that follow from their generator, so that nothing of them may be kept."""

    def __len__(self) -> int:
        return 10

    def id(self, place: int) -> str:
        return f"s{place}"

    def label(self, place: int) -> int:
        return place % 3

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        return rng.integers(0, 256, (8, 8, 3), np.uint8)


def plain(count: int = 10) -> SampleImages:
    return SampleImages([Sample(f"s{i}", Generated(lambda i=i: image(i)), i % 3) for i in range(count)])  # type: ignore[misc]


def batches(images: object = None, count: int = 4, seed: int = 1, **more: object) -> Batches:
    prepared = Prepared(images or plain(), SMALL, True, **more)  # type: ignore[arg-type]
    return Batches(prepared, count, seed, flip=True)


def test_an_epoch_shows_each_image_once_in_an_order_of_its_own() -> None:
    made = batches(count=5)
    orders = [
        np.concatenate([made.indices(step) for step in (epoch * 2, epoch * 2 + 1)]).tolist()
        for epoch in range(3)
    ]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert batches(count=5, seed=2).indices(0).tolist() != made.indices(0).tolist()


def test_left_over_images_are_passed_over_and_few_make_one_batch() -> None:
    assert (batches(count=4).per_epoch, batches(count=64).per_epoch, batches(count=64).count) == (2, 1, 10)


@pytest.mark.parametrize("images", [plain(), Drawn()], ids=["kept", "drawn"])
@pytest.mark.parametrize("crop", [None, (0.3, 1.0)], ids=["whole", "crop"])
def test_nothing_follows_from_threads_or_from_where_one_begins(images: object, crop: object) -> None:
    whole = list(batches(images, crop=crop).between(0, 7, workers=1))
    later = list(batches(images, crop=crop).between(3, 7, workers=3))
    for one, other in zip(whole[3:], later, strict=True):
        assert one.step == other.step
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)


def test_half_of_the_images_are_mirrored_and_labels_stay_with_theirs() -> None:
    mirrored = 0
    for batch in batches(plain(10), count=5).between(0, 40):
        for place, shown, label in zip(batch.indices, batch.images, batch.labels, strict=True):
            true = image(int(place))
            assert label == place % 3
            is_mirrored = np.array_equal(shown, true[:, ::-1])
            assert is_mirrored or np.array_equal(shown, true)
            mirrored += is_mirrored
    assert 70 <= mirrored <= 130


def test_other_epochs_draw_other_images() -> None:
    first, again = (batches(Drawn(), count=10).batch(step) for step in (0, 1))
    ordered = [batch.images[np.argsort(batch.indices)] for batch in (first, again)]
    assert not np.array_equal(*ordered)


def test_an_error_in_a_image_reaches_the_loop() -> None:
    broken = SampleImages(
        [Sample("a", Generated(lambda: 1 / 0), 0), Sample("b", Generated(lambda: image(1)), 1)]
    )  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        list(batches(broken, count=2).between(0, 1))


@pytest.mark.parametrize("size", [(50, 70), (20, 200), (200, 20)])
def test_random_crops_have_the_shape_of_torchvisions(size: tuple[int, int]) -> None:
    """The parts are drawn by other generators, so their statistics are compared; what is cut is
    compared to the bit.
    """
    import_torchvision()
    from torchvision.transforms import RandomResizedCrop

    gradient = np.zeros((*size, 3), np.uint8)
    gradient[..., 0], gradient[..., 1] = np.arange(size[0])[:, None], np.arange(size[1])[None]
    areas, theirs = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        areas.append(_span(random_crop(gradient, (64, 64), (0.2, 0.8), rng)))
        _, _, tall, wide = RandomResizedCrop.get_params(
            Pillow.fromarray(gradient), [0.2, 0.8], [3 / 4, 4 / 3]
        )
        theirs.append((tall - 1, wide - 1))
    np.testing.assert_allclose(np.mean(areas, axis=0), np.mean(theirs, axis=0), rtol=0.06, atol=1.5)


def _span(crop: ImageU8) -> tuple[float, float]:
    return float(np.ptp(crop[..., 0].astype(float))), float(np.ptp(crop[..., 1].astype(float)))
