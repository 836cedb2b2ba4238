"""Images made by threads and processes: equal batches, and what happens if a process dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.small_recipe import recipe

from sorites.core import SHIFTS
from sorites.core.errors import SoritesError
from sorites.training.augment.base import split
from sorites.training.augment.named import NAMED, augmentation
from sorites.training.batches import Batch, Batches, Maker
from sorites.training.loader import PROCESSES, THREADS, ImageTask, LoaderAugment, chosen_kind, image_workers
from sorites.training.session import Training


def batches_of(photos: Path, folder: Path, **keys: Any) -> Batches:
    made = recipe(photos, data={"crop": [0.3, 1.0], "flip": True}, **keys)
    return Training(made, folder, "cpu", 1, lambda text: None).steps.batches


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        a.step == b.step
        and a.images.dtype == b.images.dtype
        and np.array_equal(a.images, b.images)
        and np.array_equal(a.labels, b.labels)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("augment", ["none", "augmix"])
def test_threads_give_the_batches_of_one_thread(photos: Path, tmp_path: Path, augment: str) -> None:
    batches = batches_of(photos, tmp_path, augment=augment)
    alone = [batches.batch(step) for step in range(2, 7)]
    assert equal(list(batches.between(2, 7, 3)), alone)
    assert equal(list(batches.between(2, 7, 1)), alone)
    assert alone[0].images.ndim == (4 if augment == "none" else 5)


@pytest.mark.slow
def test_processes_give_the_batches_of_one_thread(photos: Path, tmp_path: Path) -> None:
    batches = batches_of(photos, tmp_path)
    alone = [batches.batch(step) for step in range(8)]
    assert equal(list(batches.between(0, 8, 2, PROCESSES)), alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("augment", "views", "workers"),
    [({"names": "augmix", "jsd": True}, 3, 3), ({"names": "jpeg,optics"}, 1, 1)],
)
def test_processes_augment_as_one_thread_does(
    photos: Path, tmp_path: Path, augment: dict[str, Any], views: int, workers: int
) -> None:
    batches = batches_of(photos, tmp_path, augment=augment)
    alone = [batches.batch(step) for step in range(3, 6)]
    assert alone[0].images.shape[1] == views
    assert equal(list(batches.between(3, 6, workers, PROCESSES)), alone)


class ManyAugments:
    """Augments one image by each of several augmentations; the index of the task says which."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.all = [LoaderAugment(augmentation(name, 32), 5, 4, views=False) for name in names]

    def __call__(self, task: ImageTask) -> np.ndarray:
        image = np.random.default_rng(task.place).integers(0, 256, (32, 32, 3), np.uint8)
        return self.all[task.index](image, task)


@pytest.mark.slow
def test_every_augmentation_of_the_loader_is_the_same_in_a_process() -> None:
    many = ManyAugments([name for name in (*NAMED, *SHIFTS.names()) if split(augmentation(name, 32))[0]])
    tasks = [
        ImageTask(step, place, index, 0, False)
        for index in range(len(many.names))
        for step, place in ((1, 3), (7, 0))
    ]
    alone = [many(task) for task in tasks]
    with image_workers(PROCESSES, 2, many, len(tasks), (1, 32, 32, 3), np.float32) as pool:
        together = pool.begin(tasks).result()
    other = [
        many.names[task.index]
        for task, one, two in zip(tasks, alone, together, strict=True)
        if not np.array_equal(one, two)
    ]
    assert other == []


class Dying:
    """Kills the process that makes the image 1."""

    def __call__(self, task: ImageTask) -> np.ndarray:
        if task.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros((2, 2, 3), np.uint8)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_training_with_advice() -> None:
    with (
        image_workers(PROCESSES, 1, Dying(), 2, (2, 2, 3), np.uint8) as pool,
        pytest.raises(SoritesError, match="has died"),
    ):
        pool.begin([ImageTask(0, row, row, 0, False) for row in range(2)]).result()


def test_an_error_of_an_image_reaches_the_training(photos: Path, tmp_path: Path) -> None:
    batches = batches_of(photos, tmp_path)

    def broken(*_: Any) -> Any:
        raise SoritesError("not an image")

    batches.prepared._prepare = broken  # type: ignore[method-assign]
    with pytest.raises(SoritesError, match="not an image"):
        list(batches.between(0, 3, 2))


@pytest.mark.parametrize(
    ("asked", "device", "count", "kind"),
    [
        (None, "cpu", 4, THREADS),
        (None, "cuda", 4, PROCESSES),
        (None, "cuda", 1, THREADS),
        (PROCESSES, "cpu", 1, PROCESSES),
        (THREADS, "cuda", 4, THREADS),
    ],
)
def test_processes_feed_gpus(asked: str | None, device: str, count: int, kind: str) -> None:
    assert chosen_kind(asked, device, count, Dying()) == kind


def test_images_that_cannot_be_pickled_stay_in_this_process() -> None:
    assert chosen_kind(None, "cuda", 4, lambda task: np.zeros(1)) == THREADS
    with pytest.raises(SoritesError, match="other processes"):
        chosen_kind(PROCESSES, "cuda", 4, lambda task: np.zeros(1))
    with pytest.raises(SoritesError, match="threads or processes"):
        chosen_kind("fork", "cuda", 4, Dying())


def test_images_in_memory_are_copied_by_one_thread(photos: Path, tmp_path: Path) -> None:
    training = Training(recipe(photos), tmp_path, "cpu", 4, lambda text: None)
    training.steps.device = type("Device", (), {"type": "cuda"})()  # type: ignore[assignment]
    assert training.steps.batches.prepared.is_cached
    assert training._chosen_loader(None) == THREADS
    assert training._chosen_loader(PROCESSES) == PROCESSES


def test_each_thread_has_its_own_copy_of_an_augmentation() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from sorites.training.augment import AugMix

    augment = LoaderAugment(AugMix(16), 3, 8, views=False)
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    tasks = [ImageTask(step, place, 0, 0, False) for step in range(4) for place in range(8)]
    alone = [augment(image, task) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda task: augment(image, task), tasks))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))
    assert not np.array_equal(alone[0], alone[1])


def test_a_maker_is_pickled_without_the_images_in_memory(photos: Path, tmp_path: Path) -> None:
    import pickle

    batches = Training(recipe(photos), tmp_path, "cpu", 1, lambda text: None).steps.batches
    batch = batches.batch(0)
    copied: Maker = pickle.loads(pickle.dumps(batches.maker))
    assert not copied.prepared.is_cached
    for task, image in zip(batches._tasks(0), batch.images, strict=True):
        np.testing.assert_array_equal(copied(task), image)
