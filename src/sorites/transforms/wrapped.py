"""What the wrappers for other libraries share: accepted objects, and targets that do not follow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sorites.core.errors import MissingExtra, SoritesError

if TYPE_CHECKING:
    from sorites.training.augment import Augmentation, ImageTransform


def image_transform(given: ImageTransform | Augmentation) -> ImageTransform:
    """Return what was given as a transform of one image.

    Raises:
        SoritesError: It is neither a transform nor an augmentation.
    """
    from sorites.training.augment import ImageTransform

    return given if isinstance(given, ImageTransform) else ImageTransform(given)


def peer(library: str, wanted_by: str) -> Any:
    """Import a library of the extra ``peers``.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise MissingExtra(wanted_by, "peers", library.partition(".")[0]) from error


def refuse_targets(transform: ImageTransform, found: str) -> None:
    """Refuse boxes, masks and points of a transform that moves objects, because they would be wrong.

    Raises:
        SoritesError: Objects move.
    """
    if transform.augmentation.moves_objects:
        raise SoritesError(
            f"{transform!r} moves objects, and targets ({found}) do not follow it here. Use it for images "
            "without such targets, or a shift that moves nothing."
        )
