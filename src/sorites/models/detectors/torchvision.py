"""Use a detector of torchvision: ``torchvision:NAME@weights.pth``, or ``torchvision:NAME@COCO_V1``
to let torchvision fetch them.

Weights from a file need no network. A detector of other classes than COCO's has ``?labels=FILE``,
one class name per line in the order of its class numbers, which start at 1. Torchvision's detectors
scale and normalise images themselves and give boxes in their pixels; a score floor and
suppression are part of them, and the floor is lowered to 0.001 where they let one set it.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.core.torch_tools import beside_torchvision, one_thread
from sorites.io.hub import not_fetched
from sorites.models.detectors.config import Classes, classes_of
from sorites.models.detectors.forms import boxes_of
from sorites.models.detectors.results import say
from sorites.models.torch_module import weights_hash

if TYPE_CHECKING:
    from torch import nn

FLOOR = 0.001


@add_model
def torchvision(argument: str | None) -> Model:
    """Run a detector of torchvision (torchvision:NAME@weights), with weights from a file or those
    it publishes.
    """
    text, _, query = (argument or "").partition("?")
    name, _, weights = text.partition("@")
    if not name or not weights:
        raise SoritesError(
            f"model torchvision: wanted a detector and its weights, got {argument or 'nothing'}. "
            "Type: torchvision:NAME@weights.pth, or torchvision:NAME@DEFAULT to fetch the published ones."
        )
    classes = _classes(query)
    library = beside_torchvision("torchvision", "model torchvision", "timm")
    _refuse_without_operators(library)
    module = _loaded(library, name, weights, classes).eval()
    lowered = _lowered(module)
    spec = f"torchvision:{argument}"
    version = weights_hash(module, digest(name, query, FLOOR))
    floor = f"scores from {FLOOR:g} up" if lowered else "the score floor that it carries"
    say(f"{spec} scales images itself; classes: {classes.about}; {floor}, its own suppression")
    return Model(spec, _forward(spec, module, classes), labels=classes.names, version=version, output="boxes")


def _classes(query: str) -> Classes:
    key, _, value = query.partition("=")
    if not query:
        return classes_of("coco91", "model torchvision")
    if key != "labels" or not Path(value).is_file():
        raise SoritesError(
            f"model torchvision: wanted ?labels=FILE with one class name per line, got ?{query}"
        )
    names = [
        line.strip() for line in Path(value).read_text(encoding="utf-8-sig").splitlines() if line.strip()
    ]
    return classes_of({i + 1: label for i, label in enumerate(names)}, value)


def _refuse_without_operators(library: Any) -> None:
    """Raise an error where torchvision's compiled operators are not there: its detectors need
    non-maximum suppression.
    """
    import torch

    try:
        library.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (RuntimeError, AttributeError) as error:
        raise SoritesError(
            f"model torchvision: the operators of torchvision {library.__version__} do not load with torch"
            f" {torch.__version__}: one is built for CUDA and the other is not, or their versions differ."
            " Install both of one release and one build, for the CPU or for CUDA. Or export the detector and"
            " use boxes:PATH.onnx."
        ) from error


def _loaded(library: Any, name: str, weights: str, classes: Classes) -> Any:
    known = library.models.list_models(module=library.models.detection)
    if name not in known:
        raise UnknownName("detector of torchvision", name, known, f"There are {', '.join(known)}.")
    count = 91 if classes.places is None else len(classes.places)
    if not Path(weights).is_file():
        return _published(library, name, weights)
    module = library.models.get_model(name, weights=None, weights_backbone=None, num_classes=count)
    try:
        module.load_state_dict(_state(weights))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SoritesError(
            f"{weights} cannot be loaded as the weights of torchvision:{name} with {count} classes, the"
            f" background counted: {reason}. A detector of other classes needs ?labels=FILE."
        ) from error
    return module


def _published(library: Any, name: str, weights: str) -> Any:
    tags = [tag.name for tag in library.models.get_model_weights(name)]
    if weights not in (*tags, "DEFAULT"):
        raise SoritesError(
            f"there is no weights file {weights}, and {name} has no published weights of that name:"
            f" {', '.join(tags)}"
        )
    try:
        return library.models.get_model(name, weights=weights)
    except Exception as error:  # a missing network and a host that refuses each have their own exception
        instead = f"Give a file: torchvision:{name}@weights.pth"
        raise not_fetched(f"the published weights of torchvision:{name}", error, instead) from error


def _state(path: str) -> dict[str, Any]:
    import torch

    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise SoritesError(
            f"{path} holds more than tensors and is not loaded. Save the detector's state_dict alone."
        ) from error
    except Exception as error:  # torch has a dozen exceptions for files that are cut short or of another kind
        reason = str(error).strip().split("\n")[0]
        raise SoritesError(
            f"{path} is not a weights file ({reason}). Wanted a torch file with a state_dict."
        ) from error


def _lowered(module: Any) -> bool:
    """Set the score floor where the detector has one that can be set; return whether it has."""
    parts: tuple[Any, ...] = (module, getattr(module, "roi_heads", None))
    holders = [part for part in parts if hasattr(part, "score_thresh")]
    for part in holders:
        part.score_thresh = FLOOR
    return bool(holders)


def _forward(name: str, module: nn.Module, classes: Classes) -> Any:
    import torch

    def one(image: NDArray[Any]) -> Any:
        pixels = torch.from_numpy(np.array(image.transpose(2, 0, 1), order="C")).float().div(255)
        with torch.inference_mode(), one_thread():
            return module([pixels])[0]

    def forward(images: list[NDArray[Any]]) -> Outputs:
        return Outputs(boxes=boxes_of(name, [one(image) for image in images], len(images), classes))

    return forward
