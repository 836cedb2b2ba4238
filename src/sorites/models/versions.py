"""Versions of models that are user code.

The version is the one that the user declares; otherwise it is a hash of the weights that the object holds
as its own attributes, of the files that declare it, and of its outputs for three trial images. Closures,
globals and nested containers are not searched: what changes only there is detected if it changes an output
by more than the rounding.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model
from sorites.core.rng import digest
from sorites.core.user_code import declaring_code
from sorites.models.trial import agree, rounded, run_trial, with_logits

# The number of bytes of a computed version.
SIZE = 20


def with_version(model: Model, *objects: Any) -> Model:
    """Return the model with its scale, and with a version computed from its weights, files and outputs.

    The trial images are run twice, as one batch and one by one. Arrays that change in between are not
    weights and are left out; if the outputs differ, they are left out too and the model is marked as not
    repeatable.

    Args:
        model: A model without a version.
        objects: The user's callables behind the model; default its ``forward`` and ``prepare``.

    Example:
        >>> import numpy as np
        >>> from sorites.core import Outputs
        >>> one = Model("m", lambda images: Outputs(np.zeros((len(images), 2))))
        >>> with_version(one).version == with_version(one).version
        True
    """
    callables = [part for obj in objects or (model.forward, model.prepare) for part in _parts(obj)]
    together, first = run_trial(model), [_weights(obj) for obj in callables]
    alone, second = run_trial(model, one_by_one=True), [_weights(obj) for obj in callables]
    repeats = together is None or alone is None or agree(together, alone)
    outputs = rounded(together) if together is not None and alone is not None and repeats else ""
    held = [sorted(before.items() & after.items()) for before, after in zip(first, second, strict=True)]
    code = sorted({text for obj in callables if callable(obj) for text in declaring_code(obj)})
    if model.scale == "unknown":
        model = with_logits(model, together)
    version = digest(code, held, outputs, model.scale, size=SIZE).hex()
    return replace(model, version=version, repeats=repeats)


def _parts(obj: Any) -> list[Any]:
    """Return the objects behind a callable: the object of a bound method, the parts of a partial."""
    if isinstance(obj, types.MethodType):
        return [obj.__self__]
    if isinstance(obj, functools.partial):
        return [*_parts(obj.func), *obj.args, *obj.keywords.values()]
    return [obj]


# Weights: arrays, tensors and torch modules that are the object itself or one of its attributes.


def _weights(obj: Any) -> dict[str, bytes]:
    attributes = vars(obj) if hasattr(obj, "__dict__") and not isinstance(obj, type) else {}
    hashes = {name: _weights_bytes(value) for name, value in {"": obj, **attributes}.items()}
    return {name: value for name, value in hashes.items() if value is not None}


def _weights_bytes(obj: Any) -> bytes | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.Module):
        return digest(*((name, array_bytes(value)) for name, value in obj.state_dict().items()))
    return array_bytes(obj)


def array_bytes(obj: Any) -> bytes | None:
    """Return a hash of an array or tensor of any library; None for other objects or unreadable arrays.

    Example:
        >>> array_bytes(np.zeros(3)) == array_bytes(np.zeros(3))
        True
        >>> array_bytes("text") is None
        True
    """
    if isinstance(obj, type) or not all(hasattr(type(obj), name) for name in ("__array__", "dtype", "shape")):
        return None
    try:
        array = _plain(obj)
        hasher = hashlib.sha256(digest(obj.dtype, tuple(obj.shape)))
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except Exception:  # libraries raise different errors for arrays that cannot be read
        return None
    return hasher.digest()


def _plain(obj: Any) -> NDArray[Any]:
    """Return the values of an array or tensor; dtypes that NumPy lacks are returned as bytes."""
    if not hasattr(obj, "detach"):
        return np.asarray(obj)
    import torch

    flat = obj.detach().cpu().contiguous()
    return np.asarray(flat.reshape(-1).view(torch.uint8).numpy())
