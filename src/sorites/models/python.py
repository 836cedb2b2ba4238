"""Use your own code as a model: ``python:module:name``, from an installed module or the current folder.

``name`` may be one of these, tried in this order:

1. a ``sorites.core.Model`` or a ``torch.nn.Module``;
2. a callable without arguments (a factory or a class): it is called once and must return 1 or 3;
3. any other callable: it gets a list of images (uint8, H x W x 3, RGB, of any size) and returns logits
   (N x C), (logits, features) or ``sorites.core.Outputs``. It is called by one thread at a time. A detector
   returns one result per image in one of the formats of ``sorites.models.detectors.forms``; whether a
   callable is a detector is determined once, with a grey image, when it is loaded.

The attribute ``sorites`` of a callable is a dict: ``labels`` are its classes in the order of the logits, a
list or ``"imagenet"`` (default: those of the suite). Its version, or that of a Model without a version, is
``version`` there. Without it, the version is computed from the arrays, tensors and torch modules among its
attributes, the file that declares it and the local files that one imports, and its outputs for three trial
images.

A torch module gets the usual ImageNet preprocessing at 224 px unless it has an attribute ``sorites``, a
dict with keys of ``sorites.models.preprocess.Input``, ``labels`` and ``version`` as above; it maps normalised
N x 3 x H x W to logits or (logits, features).
"""

from __future__ import annotations

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.core.compute.torch_tools import with_torchvision
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.registry import load_object
from sorites.models.detectors.forms import with_boxes
from sorites.models.export import checked
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model
from sorites.models.trial import settle_scale
from sorites.models.versions import with_version

SHAPES = "logits (N x C), (logits, features) or sorites Outputs"


@add_model
def python(argument: str | None) -> Model:
    """Run your own code (python:module:name): a torch module, a Model, a factory of either, or a function
    of images.
    """
    return as_model(f"python:{argument}", load_object("model", argument))


def as_model(name: str, obj: Any) -> Model:
    """Return a model from any object listed in the docstring of this module."""
    if not _is_model(obj) and callable(obj) and _takes_no_arguments(obj):
        obj = _call_factory(name, obj)
    if isinstance(obj, Model):
        model = replace(obj, name=name, forward=checked(name, obj.forward))
        return settle_scale(model) if model.version else with_version(model, obj.forward, obj.prepare)
    if _is_module(obj):
        return _from_module(name, obj)
    if not callable(obj):
        raise SoritesError(
            f"model {name}: expected a Model, a torch module or a callable, got {type(obj).__name__}"
        )
    model = with_boxes(Model(name, checked(name, _as_forward(name, obj)), one_caller=True), obj)
    declared = dict(getattr(obj, "sorites", {}))
    if model.output == "label":
        model = replace(model, labels=_labels(name, declared.get("labels")))
    version = declared.get("version")
    return with_version(model, obj) if version is None else settle_scale(replace(model, version=str(version)))


def _labels(name: str, declared: Any) -> tuple[str, ...] | None:
    """Return the classes that user code declares, in the order of its logits."""
    if declared is None:
        return None
    if isinstance(declared, str) and declared == "imagenet":
        return imagenet().ids
    ids = () if isinstance(declared, str) or not isinstance(declared, Iterable) else tuple(declared)
    if not ids or not all(isinstance(one, str) for one in ids):
        raise SoritesError(
            f'model {name}, its .sorites: expected labels to be a list of class names, or "imagenet", got'
            f" {str(declared)[:60]}"
        )
    return tuple(map(str, ids))


def _is_module(obj: Any) -> bool:
    """Return whether this is a torch module; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.nn.Module)


def _is_model(obj: Any) -> bool:
    return isinstance(obj, Model) or _is_module(obj)


def _takes_no_arguments(obj: Callable[..., Any]) -> bool:
    try:
        inspect.signature(obj).bind()
    except (TypeError, ValueError):
        return False
    return True


def _call_factory(name: str, factory: Callable[[], Any]) -> Any:
    try:
        product = with_torchvision(factory)
    except (Exception, SystemExit) as error:
        raise SoritesError(
            f"model {name}: calling it with no arguments raised {type(error).__name__}: {error}"
        ) from error
    if _is_model(product) or callable(product):
        return product
    raise SoritesError(
        f"model {name}: called without arguments it returned {type(product).__name__}, not a Model, a torch"
        " module or a callable. A function of images takes one argument, the list of images."
    )


def _from_module(name: str, module: Any) -> Model:
    """Return a model of a copy of the module, so that further training does not change the model."""
    config = dict(getattr(module, "sorites", {}))
    labels, version = config.pop("labels", None), config.pop("version", None)
    wants = Input.read(config, f"model {name}, its .sorites")
    model = torch_model(name, copy.deepcopy(module).cpu(), wants, _labels(name, labels))
    described = {**model.input, **wants.assumed}
    return replace(model, input=described, version=model.version if version is None else str(version))


def _as_forward(
    name: str, function: Callable[[list[NDArray[Any]]], Any]
) -> Callable[[list[NDArray[Any]]], Outputs]:
    lock = threading.Lock()

    def forward(images: list[NDArray[Any]]) -> Outputs:
        with lock:
            outputs = function(images)
        if isinstance(outputs, Outputs):
            return outputs
        if isinstance(outputs, tuple) and len(outputs) == 2:
            return Outputs(*outputs)
        if outputs is None or isinstance(outputs, str | bytes | dict | tuple):
            raise SoritesError(f"model {name}: expected {SHAPES}, got {type(outputs).__name__}")
        return Outputs(outputs)

    return forward
