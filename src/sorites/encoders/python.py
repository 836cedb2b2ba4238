"""Your own image-text model: ``python:module:name``, with the module installed or in the current folder.

``name`` is an object with ``images(images)`` and ``texts(sentences)``, or something that returns
one when called without arguments. Images are uint8, H x W x 3, RGB, each its own size; both
return N x D. Three attributes are optional: ``version`` identifies the weights; ``labels`` and
``styles`` (groups of templates) are the texts by which its space is decomposed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core import Encoder, Features, ImageU8, add_encoder
from sorites.core.errors import SoritesError, left_by_exit
from sorites.core.torch_tools import mend_torchvision
from sorites.encoders.features import checked


@add_encoder
def python(argument: str | None) -> Encoder:
    """python:module:name: an object with images(images) and texts(sentences), or a function that
    makes one.
    """
    module, _, attribute = (argument or "").partition(":")
    if not module or not attribute:
        raise SoritesError(
            f"encoder python: expected a module and a name in it, got {argument!r}. Type: python:module:name"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    mend_torchvision()
    try:
        obj = getattr(importlib.import_module(module), attribute)
        return as_encoder(f"python:{argument}", obj)
    except SoritesError:
        raise
    except SystemExit as error:
        raise SoritesError(f"encoder python:{argument} did not load: {left_by_exit(error)}") from error
    except Exception as error:
        raise SoritesError(
            f"encoder python:{argument} did not load: {type(error).__name__}: {error}"
        ) from error


def as_encoder(name: str, obj: Any) -> Encoder:
    """Return an encoder made from an object or function as the module's docstring describes it."""
    ready = hasattr(obj, "images") and not isinstance(obj, type)
    made = obj() if not ready and callable(obj) else obj
    if isinstance(made, Encoder):
        return made
    if not callable(getattr(made, "images", None)) or not callable(getattr(made, "texts", None)):
        raise SoritesError(
            f"encoder {name}: expected images(images) and texts(sentences), got a {type(made).__name__}"
        )

    def images(images_u8: Sequence[ImageU8], framed: bool = False) -> Features:
        return checked(name, made.images([np.array(image) for image in images_u8]), len(images_u8))

    def texts(sentences: Sequence[str]) -> Features:
        return checked(name, made.texts(list(sentences)), len(sentences))

    labels, styles = getattr(made, "labels", ()), getattr(made, "styles", ())
    return Encoder(
        name, images, texts, str(getattr(made, "version", "")), tuple(labels), tuple(map(tuple, styles))
    )
