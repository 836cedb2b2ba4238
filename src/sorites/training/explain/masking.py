"""Saliency maps of any model, from what it answers when parts of an image are hidden.

RISE (Petsiuk et al. 2018) hides random parts and averages the masks, weighted by the score that the model
still gives: S(x) = sum over masks of score * mask(x) / (p * number of masks). A mask is a random grid of
cells, each visible with p = 1/2, moved by a random offset and interpolated bilinearly. For a detector the
score is that of D-RISE (Petsiuk et al. 2021). ``occlusion`` (Zeiler and Fergus 2014) hides one square after
the other and averages the loss of the score over the squares that cover a pixel.

Masks are drawn in complementary pairs, so that every pixel is visible in exactly half of them. They follow
from the generator alone, and images are evaluated in batches of a fixed size: maps do not depend on
anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import softmax

from sorites.core import Box, ImageU8, Model
from sorites.core.boxes import iou
from sorites.core.errors import SoritesError
from sorites.evaluation.predict import evaluate_images

Map = NDArray[np.float64]
# Scores images, one number each; higher means more of what is explained.
Score = Callable[[Sequence[ImageU8]], NDArray[np.float64]]
Tick = Callable[[int], None]

# What hides pixels: ImageNet's mean colour, which is 0 after the usual normalisation, as in RISE.
FILL = np.array([124, 116, 104], np.float32)
VISIBLE = 0.5
BATCH = 8
DEFAULT_MASKS = 500
# Cells along a side of the grid of masks.
CLASS_CELLS, OBJECT_CELLS = 7, 10
# Squares along a side, which overlap by half, and the number of images that are evaluated for them.
SQUARES = 7
OCCLUSION_PASSES = (2 * SQUARES + 1) ** 2
# Shares of the pixels at which ``deletion`` and ``insertion`` read the score.
SHARES = np.linspace(0, 1, 11)
# A map whose highest point is less than this many standard errors above its mean shows noise.
LEAST_PEAK = 4.0


@dataclass(frozen=True)
class Masks:
    """Random masks for images of one size: grids of cells and their offsets, as shares of a cell."""

    size: tuple[int, int]
    grids: NDArray[np.bool_]
    offsets: NDArray[np.float64]

    @classmethod
    def drawn(cls, size: tuple[int, int], count: int, cells: int, rng: np.random.Generator) -> Masks:
        """Draw masks in complementary pairs.

        Args:
            size: Height and width of the image.
            count: The number of masks, which is rounded up to an even number.
            cells: Cells along each side.
            rng: The generator.
        """
        pairs = math.ceil(count / 2)
        grids = rng.random((pairs, cells + 2, cells + 2)) < VISIBLE
        offsets = np.repeat(rng.random((pairs, 2)), 2, axis=0)
        return cls(size, np.stack([grids, ~grids], axis=1).reshape(-1, cells + 2, cells + 2), offsets)

    def __len__(self) -> int:
        return len(self.grids)

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        for grid, (down, right) in zip(self.grids, self.offsets, strict=True):
            rows, columns = (
                interpolation(side, grid.shape[0] - 2, offset)
                for side, offset in zip(self.size, (down, right), strict=True)
            )
            yield rows @ grid.astype(np.float64) @ columns.T


def interpolation(side: int, cells: int, offset: float) -> NDArray[np.float64]:
    """Return the weight of each grid point at each pixel, side x (cells + 2); rows sum to 1.

    Args:
        side: The number of pixels.
        cells: Cells along the side.
        offset: Where the first pixel is, as a share of a cell.
    """
    at = np.arange(side) * (cells / side) + offset
    below = np.floor(at).astype(np.int64)
    weights = np.zeros((side, cells + 2))
    weights[np.arange(side), below] = 1 - (at - below)
    weights[np.arange(side), below + 1] = at - below
    return weights


def hidden(image: ImageU8, mask: NDArray[np.floating]) -> ImageU8:
    """Return an image of which a mask (H x W, 1 = visible) hides parts."""
    shown = FILL + (image.astype(np.float32) - FILL) * mask[..., None].astype(np.float32)
    return np.clip(np.rint(shown), 0, 255).astype(np.uint8)


def rise(
    score: Score,
    image: ImageU8,
    rng: np.random.Generator,
    *,
    masks: int = DEFAULT_MASKS,
    cells: int = CLASS_CELLS,
    tick: Tick = lambda n: None,
) -> tuple[Map, bool]:
    """Return the RISE map of an image, H x W, and whether a region stands out of its noise.

    Args:
        score: What is explained.
        image: The image.
        rng: The generator of the masks.
        masks: The number of masks; the noise falls with its square root.
        cells: Cells along each side of a mask; smaller objects need more of them, and more masks.
        tick: Called with the number of images that were evaluated.

    Example:
        >>> image = np.full((8, 8, 3), 255, np.uint8)
        >>> corner = lambda images: np.array([image[:4, :4].mean() for image in images])
        >>> found, clear = rise(corner, image, np.random.default_rng(0), masks=400, cells=2)
        >>> bool(found[1, 1] > found[6, 6]), clear
        (True, True)
    """
    drawn = Masks.drawn(image.shape[:2], masks, cells, rng)
    total, scores = np.zeros(image.shape[:2]), []
    for part in _batches(iter(drawn)):
        values = score([hidden(image, mask) for mask in part])
        for value, mask in zip(values, part, strict=True):
            total += value * mask
            scores.append(float(value))
        tick(len(part))
    found = total / (len(drawn) * VISIBLE)
    error = float(np.std(scores)) * math.sqrt((1 - VISIBLE) / VISIBLE / len(drawn))
    return found, bool(found.max() - found.mean() > LEAST_PEAK * error > 0)


def _batches(masks: Iterator[NDArray[np.float64]]) -> Iterator[list[NDArray[np.float64]]]:
    while part := [mask for _, mask in zip(range(BATCH), masks, strict=False)]:
        yield part


def occlusion(score: Score, image: ImageU8, *, tick: Tick = lambda n: None) -> tuple[Map, bool]:
    """Return the mean loss of the score over the squares that cover each pixel, and whether any loses.

    Args:
        score: What is explained.
        image: The image.
        tick: Called with the number of images that were evaluated.
    """
    height, width = image.shape[:2]
    squares = list(_squares(height, width))
    whole = float(score([image])[0])
    total, covered = np.zeros((height, width)), np.zeros((height, width))
    for start in range(0, len(squares), BATCH):
        part = squares[start : start + BATCH]
        values = score([hidden(image, _without(image, square)) for square in part])
        for value, square in zip(values, part, strict=True):
            total[square] += whole - value
            covered[square] += 1
        tick(len(part))
    found = total / np.maximum(covered, 1)
    return found, bool(found.max() > 0)


def _squares(height: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield squares of a seventh of each side in steps of half of that, so that each pixel is in four."""
    rows, columns = (_spans(side) for side in (height, width))
    return ((slice(*row), slice(*column)) for row in rows for column in columns)


def _spans(side: int) -> list[tuple[int, int]]:
    ends = np.rint(np.arange(-1, 2 * SQUARES + 2) * side / (2 * SQUARES)).astype(int)
    spans = [(max(int(a), 0), min(int(b), side)) for a, b in zip(ends, ends[2:], strict=False)]
    return [(a, b) for a, b in spans if a < b]


def _without(image: ImageU8, square: tuple[slice, slice]) -> NDArray[np.float64]:
    mask = np.ones(image.shape[:2])
    mask[square] = 0
    return mask


# How the score follows the map.


def deletion(score: Score, image: ImageU8, found: Map) -> NDArray[np.float64]:
    """Return the score as the pixels with the highest values are hidden, at ``SHARES`` of the pixels."""
    order = _ranks(found)
    return score([hidden(image, order >= share * order.size) for share in SHARES])


def insertion(score: Score, image: ImageU8, found: Map) -> NDArray[np.float64]:
    """Return the score as the pixels with the highest values replace those of a blurred image."""
    order, sigma = _ranks(found), max(image.shape[:2]) / 20
    blurred = ndimage.gaussian_filter(image.astype(np.float32), (sigma, sigma, 0))
    soft = np.clip(np.rint(blurred), 0, 255).astype(np.uint8)
    shown = [np.where((order < share * order.size)[..., None], image, soft) for share in SHARES]
    return score(shown)


def area(curve: NDArray[np.float64]) -> float:
    """Return the area under a curve at ``SHARES``."""
    return float(np.trapezoid(curve, SHARES))


def _ranks(found: Map) -> NDArray[np.int64]:
    """Return the rank of each pixel, 0 for the highest value; equal values by position."""
    ranks = np.empty(found.size, np.int64)
    ranks[np.argsort(-found, axis=None, kind="stable")] = np.arange(found.size)
    return ranks.reshape(found.shape)


# What is explained.


def class_score(
    model: Model, column: int, columns: Sequence[int] | None = None, framed: bool = False
) -> Score:
    """Return the score of a class: its probability.

    Args:
        model: A classifier.
        column: The column of its logits.
        columns: The columns that compete; default all.
        framed: Whether images are only scaled to the model's input, not cropped.
    """
    compared = None if columns is None else np.asarray(columns)
    place = column if compared is None else int(np.flatnonzero(compared == column)[0])

    def score(images: Sequence[ImageU8]) -> NDArray[np.float64]:
        outputs, errors = evaluate_images(model, list(images), framed)
        _refuse_errors(errors)
        if outputs.logits is None:
            raise SoritesError(f"model {model.name} returned no logits to explain")
        logits = np.asarray(outputs.logits, np.float64)
        return np.asarray(softmax(logits if compared is None else logits[:, compared], axis=1)[:, place])

    return score


def object_score(model: Model, target: Box, framed: bool = False) -> Score:
    """Return the score of an object: the largest IoU times confidence of the boxes of its class.

    This is the similarity of D-RISE for detectors that give one class and confidence per box; where vectors
    of class probabilities exist, the paper compares these too.

    Args:
        model: A detector.
        target: The box; its label is a class of the model.
        framed: Whether images are only scaled to the model's input, not cropped.
    """
    wanted = np.array([target.xyxy])

    def score(images: Sequence[ImageU8]) -> NDArray[np.float64]:
        outputs, errors = evaluate_images(model, list(images), framed)
        _refuse_errors(errors)
        return np.array([_similarity(boxes, target.label, wanted) for boxes in outputs.boxes or ()])

    return score


def _similarity(boxes: Sequence[Box], label: int, wanted: NDArray[np.float64]) -> float:
    same = [box for box in boxes if box.label == label]
    if not same:
        return 0.0
    overlaps = iou(np.array([box.xyxy for box in same]), wanted)[:, 0]
    return float(np.max(overlaps * np.array([box.conf or 0.0 for box in same])))


def _refuse_errors(errors: Sequence[str | None]) -> None:
    first = next((error for error in errors if error is not None), None)
    if first is not None:
        raise SoritesError(f"a partly hidden image could not be evaluated: {first}")
