"""Augmentations as transforms of albumentations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sorites.transforms.wrapped import image_transform, peer, refuse_targets

if TYPE_CHECKING:
    from sorites.training.augment import Augmentation, ImageTransform

TARGETS = ("bboxes", "keypoints", "mask", "masks", "mask3d", "masks3d")


@functools.cache
def _kind() -> type[Any]:
    library = peer("albumentations", "as_albumentations")

    class ImageTransformA(library.ImageOnlyTransform):  # type: ignore[misc, name-defined]
        """Changes images; other targets pass."""

        def __init__(self, images: ImageTransform, p: float = 1.0) -> None:
            super().__init__(p=p)
            self.images = images

        def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> Any:
            for target in TARGETS:
                if data.get(target) is not None:
                    refuse_targets(self.images, target)
            return super().__call__(*args, force_apply=force_apply, **data)

        def apply(self, img: Any, key: int = 0, **params: Any) -> Any:
            return self.images(img, key=key)

        def get_params(self) -> dict[str, Any]:
            return {"key": int(self.random_generator.integers(2**62))}

        @classmethod
        def is_serializable(cls) -> bool:
            return False

        def get_transform_init_args(self) -> dict[str, Any]:
            return {"images": repr(self.images)}

        def __reduce__(self) -> tuple[Any, ...]:
            return _restore, (self.images, self.p, self.random_generator, self.py_random)

    return ImageTransformA


def _restore(images: ImageTransform, p: float, numpy_random: Any, py_random: Any) -> Any:
    made = _kind()(images, p)
    made.set_random_state(numpy_random, py_random)
    return made


def as_albumentations(transform: ImageTransform | Augmentation, p: float = 1.0) -> Any:
    """Return an ``albumentations.ImageOnlyTransform``.

    Its draws come from the generator of albumentations (``A.Compose(..., seed=N)``), one key for each call,
    and from the seed of the transform. Boxes, masks and keypoints come back unchanged; where the transform
    moves objects they are refused. It cannot be serialised to a dictionary.

    Args:
        transform: A transform such as ``Coma()``, or an augmentation such as ``OpticsAugment()``.
        p: Probability that albumentations applies it.

    Raises:
        MissingExtra: albumentations is not installed.
    """
    return _kind()(image_transform(transform), p=p)
