"""Your own image-text model: ``python:module:name``, where the module is installed or in the current
folder.

``name`` is an object with ``images(images)`` and ``texts(sentences)``, or a callable without arguments
that returns one. Images are uint8 arrays (H x W x 3, RGB) of any size; both methods return N x D
features. Three attributes are optional: ``version`` identifies the weights; ``labels`` and ``styles``
(groups of templates) are the texts from which its space is decomposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sorites.core import Encoder, Features, ImageU8, add_encoder
from sorites.core.compute.torch_tools import with_torchvision
from sorites.core.errors import SoritesError
from sorites.core.registry import load_object
from sorites.encoders.features import checked


@add_encoder
def python(argument: str | None) -> Encoder:
    """python:module:name: an object with images(images) and texts(sentences), or a function that returns
    one.
    """
    obj = load_object("encoder", argument)
    try:
        return as_encoder(f"python:{argument}", obj)
    except SoritesError:
        raise
    except (Exception, SystemExit) as error:
        raise SoritesError(
            f"encoder python:{argument} did not load: {type(error).__name__}: {error}"
        ) from error


def as_encoder(name: str, obj: Any) -> Encoder:
    """Return an encoder made from an object or function as described in the module's docstring.

    Args:
        name: The name of the encoder.
        obj: An object with ``images`` and ``texts``, or a callable that returns one.

    Raises:
        SoritesError: If the object lacks one of the two methods.
    """
    is_instance = hasattr(obj, "images") and not isinstance(obj, type)
    model = with_torchvision(obj) if not is_instance and callable(obj) else obj
    if isinstance(model, Encoder):
        return model
    if not callable(getattr(model, "images", None)) or not callable(getattr(model, "texts", None)):
        raise SoritesError(
            f"encoder {name}: expected images(images) and texts(sentences), got a {type(model).__name__}"
        )

    def images(images_u8: Sequence[ImageU8], framed: bool = False) -> Features:
        return checked(name, model.images([np.array(image) for image in images_u8]), len(images_u8))

    def texts(sentences: Sequence[str]) -> Features:
        return checked(name, model.texts(list(sentences)), len(sentences))

    labels, styles = getattr(model, "labels", ()), getattr(model, "styles", ())
    return Encoder(
        name, images, texts, str(getattr(model, "version", "")), tuple(labels), tuple(map(tuple, styles))
    )
