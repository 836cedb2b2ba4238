"""Shifts as perturbers of NRTK."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from sorites.core.errors import SoritesError
from sorites.transforms.wrapped import image_transform, peer, refuse_targets

if TYPE_CHECKING:
    from sorites.training.augment import ImageTransform


@functools.cache
def _kind() -> type[Any]:
    interfaces = peer("nrtk.interfaces", "as_nrtk")

    class ShiftPerturber(interfaces.PerturbImage):  # type: ignore[misc, name-defined]
        """Applies a shift of Sorites; its configuration is that of ``ShiftAugment`` and a seed."""

        def __init__(
            self,
            name: str,
            severity: Any = None,
            settings: Any = None,
            probability: float = 1.0,
            seed: int = 0,
            options: Mapping[str, Any] | None = None,
        ) -> None:
            from sorites.training.augment import ImageTransform, ShiftAugment

            super().__init__()
            span = tuple(severity) if isinstance(severity, list) else severity
            self.images = ImageTransform(
                ShiftAugment(
                    name, severity=span, settings=settings, probability=probability, options=options
                ),
                seed,
            )
            self.config = {
                "name": name,
                "severity": list(span) if isinstance(span, tuple) else span,
                "settings": None if settings is None else list(settings),
                "probability": probability,
                "seed": seed,
                "options": dict(options or {}),
            }

        def perturb(self, *, image: Any, boxes: Any = None, **more: Any) -> Any:
            kept = None if boxes is None else list(boxes)
            if kept:
                refuse_targets(self.images, "boxes")
            return self.images(image, key=more.get("key")), deepcopy(kept)

        def get_config(self) -> dict[str, Any]:
            return dict(self.config)

        def __reduce__(self) -> tuple[Any, ...]:
            return _configured, (self.config,)

    return ShiftPerturber


def _configured(config: Mapping[str, Any]) -> Any:
    return _kind()(**config)


def as_nrtk(transform: ImageTransform) -> Any:
    """Return a shift as an ``nrtk.interfaces.PerturbImage``.

    ``perturb(image=..., boxes=...)`` takes arrays, uint8 or floats in 0..1. The draws depend on the seed and
    the pixels, or on ``key=`` if it is passed. Boxes come back unchanged; where the shift moves objects they
    are refused. ``get_config`` and ``from_config`` describe it in JSON.

    Args:
        transform: A shift such as ``Coma(severity=2)``.

    Raises:
        MissingExtra: NRTK is not installed.
        SoritesError: It is not a shift, so NRTK could not describe it.
    """
    from sorites.training.augment import ShiftAugment

    made = image_transform(transform)
    augmentation = made.augmentation
    if not isinstance(augmentation, ShiftAugment):
        raise SoritesError(f"as_nrtk: expected a shift such as Coma(severity=2), got {augmentation!r}")
    return _configured(augmentation.arguments() | {"seed": made.seed})
