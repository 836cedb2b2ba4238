"""Use your own code as a model: ``python:module:name``, with the module installed or in the current folder.

``name`` may be one of these, tried in this order:

1. a ``sorites.core.Model``, or a ``torch.nn.Module``: used as it is;
2. something that can be called with no arguments (a factory, a class): it is called once, and must
give one of 1 or 3;
3. anything else that can be called: it is the model. It gets a list of images (uint8, H x W x 3,
RGB, each of
   its own size) and gives logits (N x C), or (logits, features), or ``sorites.core.Outputs``. It is
       called by one thread at
   a time. A detector gives one result per image in a form that ``sorites.models.detectors.forms``
       names; which of the two
   it is, is decided once, when it is loaded, on a grey image.

The version of a callable, or of a Model that brings none, follows from the files of its module and
of the modules beside it that these import, the arrays and tensors it holds, and what it says of
three trial images.

A torch module gets ImageNet's usual preprocessing at 224 px unless it carries a dict ``sorites``
with some of the keys of ``sorites.models.preprocess.Input`` and ``labels``; it maps normalised N x
3 x H x W to logits or (logits, features).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.core.errors import SoritesError, UnknownName, left_by_exit
from sorites.core.torch_tools import mend_torchvision
from sorites.models.detectors.forms import with_boxes
from sorites.models.export import checked
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model
from sorites.models.versions import versioned

SHAPES = "logits (N x C), (logits, features) or sorites Outputs"


@add_model
def python(argument: str | None) -> Model:
    """Run your own code (python:module:name): a torch module, a Model, a factory of either, or a
    function of images.
    """
    module, _, attribute = (argument or "").partition(":")
    if not module or not attribute:
        raise SoritesError(
            f"model python: wanted a module and a name in it, got {argument!r}. Type: python:module:name"
        )
    return as_model(f"python:{argument}", found_in(module, attribute))


def found_in(module: str, attribute: str) -> Any:
    """Return an object of a module that is installed or lies in the current folder."""
    return _find(_import(module), attribute)


def as_model(name: str, obj: Any) -> Model:
    """Return a model from anything that this module's docstring names; ``name`` is what the table
    calls it.
    """
    if not _is_model(obj) and callable(obj) and _takes_no_arguments(obj):
        obj = _called_factory(name, obj)
    if isinstance(obj, Model):
        made = replace(obj, name=name, forward=checked(name, obj.forward))
        return made if made.version else versioned(made, obj.forward, obj.prepare)
    if _is_module(obj):
        return _from_module(name, obj)
    if not callable(obj):
        raise SoritesError(
            f"model {name}: wanted a Model, a torch module or something to call, got {type(obj).__name__}"
        )
    return versioned(
        with_boxes(Model(name, checked(name, _as_forward(name, obj)), one_caller=True), obj), obj
    )


def _import(module: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    mend_torchvision()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise SoritesError(
                f"there is no Python module named {module!r}, installed or in {here}"
            ) from error
        raise SoritesError(f"module {module} needs {error.name}, which is not installed") from error
    except SystemExit as error:
        raise SoritesError(f"module {module} did not import: {left_by_exit(error)}") from error
    except Exception as error:
        raise SoritesError(f"module {module} did not import: {type(error).__name__}: {error}") from error


def _find(module: Any, attribute: str) -> Any:
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(f"object in module {module.__name__}", attribute, names)
    return getattr(module, attribute)


def _is_module(obj: Any) -> bool:
    """Return whether this is a torch module, without importing torch: where torch was never
    imported, there is none.
    """
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


def _called_factory(name: str, factory: Callable[[], Any]) -> Any:
    try:
        product = factory()
    except (Exception, SystemExit) as error:
        raise SoritesError(
            f"model {name}: calling it with no arguments raised {type(error).__name__}: {error}"
        ) from error
    if _is_model(product) or callable(product):
        return product
    raise SoritesError(
        f"model {name}: called with no arguments it gave {type(product).__name__}, not a Model, a torch"
        " module or something to call. A function of images takes one argument, the list of images."
    )


def _from_module(name: str, module: Any) -> Model:
    """Return a model of a snapshot of the module: training the module further does not change the model."""
    config = dict(getattr(module, "sorites", {}))
    labels = config.pop("labels", None)
    wants = Input.read(config, f"model {name}, its .sorites")
    return torch_model(name, copy.deepcopy(module).cpu(), wants, labels)


def _as_forward(
    name: str, function: Callable[[list[NDArray[Any]]], Any]
) -> Callable[[list[NDArray[Any]]], Outputs]:
    lock = threading.Lock()

    def forward(images: list[NDArray[Any]]) -> Outputs:
        with lock:
            given = function(images)
        if isinstance(given, Outputs):
            return given
        if isinstance(given, tuple) and len(given) == 2:
            return Outputs(*given)
        if given is None or isinstance(given, str | bytes | dict | tuple):
            raise SoritesError(f"model {name}: wanted {SHAPES}, got {type(given).__name__}")
        return Outputs(given)

    return forward
