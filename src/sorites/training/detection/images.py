"""Training images with ground-truth boxes, which follow the image into the input of a detector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageU8, Sample
from sorites.core.boxes import areas
from sorites.core.errors import SoritesError
from sorites.core.rng import digest, rng_for
from sorites.models.detectors.config import placement_of
from sorites.models.detectors.fcos import FIT, place
from sorites.models.detectors.results import clipped
from sorites.models.preprocess import Input
from sorites.training.batches import DRAW, Prepared, crop_window, random_crop
from sorites.training.detection.targets import GroundTruth
from sorites.training.images import SampleImages

# An object of which a crop shows less than this share is ignored.
MIN_VISIBLE_SHARE = 0.25


@dataclass(frozen=True)
class BoxImages(SampleImages):
    """Unmodified images of samples with ground-truth boxes."""

    def __post_init__(self) -> None:
        missing = next((sample.id for sample in self.samples if sample.ground_truth is None), None)
        if missing is not None:
            raise SoritesError(
                f"Every training image of a detector needs ground-truth boxes; {missing} has none."
            )

    def label(self, index: int) -> int:
        """Return 0: the classes are those of the boxes."""
        return 0

    def boxes_digest(self, index: int) -> str:
        """Return a hash of the boxes of an image, by which a training is resumed with the same ones only."""
        rows = [(*box.xyxy, box.label, box.crowd) for box in boxes_of(self.samples[index])]
        return digest(rows, size=8).hex()

    def ground_truth(self, index: int) -> GroundTruth:
        """Return the boxes of an image in its own px, without those that have no area."""
        boxes = boxes_of(self.samples[index])
        xyxy = np.array([box.xyxy for box in boxes], np.float64).reshape(-1, 4)
        labels = np.array([box.label for box in boxes], np.int64)
        ignored = np.array([box.crowd for box in boxes], bool)
        real = areas(xyxy) > 0
        return GroundTruth(xyxy[real], labels[real], ignored[real])


def boxes_of(sample: Sample) -> tuple[Box, ...]:
    """Return the ground-truth boxes of a sample."""
    return sample.ground_truth or ()


class BoxPrepared(Prepared):
    """Images letterboxed into a detector's input, or cropped at random, with their boxes.

    Args:
        images: The images.
        wants: The input of the detector.
        crop: The range of the area of random crops; None for whole images.
    """

    images: BoxImages

    def __init__(self, images: BoxImages, wants: Input, crop: tuple[float, float] | None = None) -> None:
        super().__init__(images, wants, True, crop)
        self._sizes = np.zeros((len(images), 2), np.int64)

    def boxes(self, index: int, seed: int, epoch: int, mirrored: bool) -> GroundTruth:
        """Return the boxes of an image as ``one`` prepares it with the same numbers, mirrored or not.

        Args:
            index: The index of the image.
            seed: The seed of the training.
            epoch: The epoch.
            mirrored: Whether the image is mirrored afterwards.
        """
        own = self.images.ground_truth(index)
        height, width = self._size(index)
        rng = rng_for(seed, f"{epoch}/{index}", DRAW)
        if self.crop is None:
            moved = placement_of((height, width), self.wants.size, FIT)[1].into(own.boxes)
        else:
            moved = _cropped(own.boxes, crop_window(height, width, self.crop, rng), self.wants.size)
        inside = clipped(moved, self.wants.size)
        share = areas(inside) / np.maximum(areas(moved), 1e-9)
        if mirrored:
            inside = np.stack(
                [
                    self.wants.size[1] - inside[:, 2],
                    inside[:, 1],
                    self.wants.size[1] - inside[:, 0],
                    inside[:, 3],
                ],
                1,
            )
        shown = share > 0
        return GroundTruth(
            inside[shown], own.labels[shown], (own.ignored | (share < MIN_VISIBLE_SHARE))[shown]
        )

    def _size(self, index: int) -> tuple[int, int]:
        """Return height and width of an image, decoding it if another process did so before."""
        if not self._sizes[index].any():
            self._sizes[index] = self.images.image(index, rng_for(0, str(index), DRAW)).shape[:2]
        height, width = self._sizes[index].tolist()
        return height, width

    def _prepare(self, index: int, seed: int, epoch: int) -> ImageU8:
        rng = rng_for(seed, f"{epoch}/{index}", DRAW)
        image = self.images.image(index, rng)
        self._sizes[index] = image.shape[:2]
        if self.crop is None:
            return place(image, self.wants.size)[0]
        return random_crop(image, self.wants.size, self.crop, rng)


def _cropped(
    boxes: NDArray[np.float64], window: tuple[int, int, int, int], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Return boxes in px of a crop (top, left, height, width) that is resized to ``size``."""
    top, left, tall, wide = window
    scale = np.array([size[1] / wide, size[0] / tall] * 2)
    return np.asarray((boxes - (left, top, left, top)) * scale)
