"""Give the boxes of a detector features: ``crops:ENCODER,DETECTOR``.

Each box from a confidence of 0.25 on is cut out of the image and shown to an encoder: a model with features
(``lite0``, ``timm:NAME``) or an image encoder (``encoder:NAME``). Scorers that need features, such as
``knn``, then work for any detector. Boxes of less confidence have no features. Crops are shown one by one,
so that features do not depend on other boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import Box, ImageU8, Model, Outputs, add_model
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.types import unchanged

# The version of cropping; increase it when crops change.
VERSION = 1
# Boxes of less confidence have no features, because every crop is a pass of the encoder.
MIN_CONFIDENCE = 0.25
# Context around a box: this share of its sides, on each side.
MARGIN = 0.1
ENCODER = "encoder:"

# Returns the features of an image, D numbers.
Encode = Callable[[ImageU8], NDArray[np.float32]]


@add_model
def crops(argument: str | None) -> Model:
    """Run a detector and give each box the features of its crop (crops:lite0,picodet), for OOD scores."""
    first, comma, second = (argument or "").partition(",")
    if not first or not comma or not second:
        raise SoritesError(
            f"model crops: expected an encoder and a detector, got {argument or 'nothing'}. Use"
            " crops:lite0,picodet or crops:lite0,boxes:PATH.onnx"
        )
    return with_crops(core.model(second), *_encoder(first), f"crops:{argument}")


def _encoder(spec: str) -> tuple[Encode, str]:
    """Return the function of an encoder, and its version."""
    if spec.startswith(ENCODER):
        encoder = core.encoder(spec.removeprefix(ENCODER))
        return lambda image: np.asarray(encoder.images([image], False)[0], np.float32), encoder.version
    model = core.model(spec)

    def features(image: ImageU8) -> NDArray[np.float32]:
        rows = model([image]).features
        if rows is None:
            raise SoritesError(f"model crops: {spec} gives no features. Use lite0, timm:NAME or encoder:NAME")
        return np.asarray(rows[0], np.float32)

    return features, model.version


def with_crops(detector: Model, encode: Encode, version: str, name: str) -> Model:
    """Return a detector whose boxes have the features of their crops.

    Args:
        detector: The detector.
        encode: Returns the features of an image.
        version: Identifies the weights of the encoder.
        name: The name of the model.

    Raises:
        SoritesError: The model is no detector.
    """
    if detector.output != "boxes":
        raise SoritesError(f"model {name}: expected a detector, but {detector.name} is a classifier")
    width = len(encode(np.full((64, 64, 3), 128, np.uint8)))

    def forward(images: list[NDArray[Any]]) -> Outputs:
        outputs = detector(images)
        found = outputs.boxes or []
        features = [
            _features(image, boxes, encode, width) for image, boxes in zip(images, found, strict=True)
        ]
        return replace(outputs, box_features=features)

    return replace(
        detector,
        name=name,
        forward=forward,
        prepare=unchanged,
        version=digest(VERSION, detector.version, version, MIN_CONFIDENCE, MARGIN).hex(),
        parameters=None,
    )


def _features(image: ImageU8, boxes: Sequence[Box], encode: Encode, width: int) -> NDArray[np.float32]:
    rows = np.full((len(boxes), width), np.nan, np.float32)
    for i, box in enumerate(boxes):
        if (box.conf or 0.0) >= MIN_CONFIDENCE:
            rows[i] = encode(crop(image, box))
    return rows


def crop(image: ImageU8, box: Box) -> ImageU8:
    """Return the part of an image inside a box and a margin around it; at least one pixel."""
    height, width = image.shape[:2]
    x0, y0, x1, y1 = box.xyxy
    more_x, more_y = MARGIN * (x1 - x0), MARGIN * (y1 - y0)
    left, top = (
        int(np.clip(np.floor(low), 0, side - 1))
        for low, side in ((x0 - more_x, width), (y0 - more_y, height))
    )
    right = int(np.clip(np.ceil(x1 + more_x), left + 1, width))
    bottom = int(np.clip(np.ceil(y1 + more_y), top + 1, height))
    return np.ascontiguousarray(image[top:bottom, left:right])
