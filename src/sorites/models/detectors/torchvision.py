"""Use a detector of torchvision: ``torchvision:NAME@weights.pth``, or ``torchvision:NAME@COCO_V1`` to
download published weights.

For classes other than COCO's, pass ``?labels=FILE`` with one class name per line, in the order of the class
numbers, which start at 1. Torchvision detectors resize and normalise images themselves and return boxes in
image pixels. They include a score threshold and suppression; the threshold is lowered to 0.001 if the
detector allows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Backend, Model, Outputs, add_model
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import compute_options, device_of, import_with_torchvision
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.models import torchvision as classifiers
from sorites.models.detectors.config import Classes, classes_of
from sorites.models.detectors.forms import boxes_of
from sorites.models.detectors.results import say
from sorites.models.torch_module import weights_hash

if TYPE_CHECKING:
    from torch import nn

SCORE_THRESHOLD = 0.001


@add_model
def torchvision(argument: str | None) -> Model:
    """Run a classifier or detector of torchvision (torchvision:NAME@WEIGHTS): a file or published weights."""
    text, _, query = (argument or "").partition("?")
    name, _, weights = text.partition("@")
    if not name or not weights:
        raise SoritesError(
            f"model torchvision: expected a name and its weights, got {argument or 'nothing'}. Use"
            " torchvision:NAME@weights.pth, or torchvision:NAME@DEFAULT to download the published weights."
        )
    library = import_with_torchvision("torchvision", "model torchvision", "timm")
    if name in classifiers.names(library):
        return classifiers.classifier(library, f"torchvision:{argument}", name, weights, query)
    classes = _classes(query)
    _check_name(library, name)
    _refuse_without_operators(library)
    module = _load(library, name, weights, classes).eval()
    lowered = _lower_threshold(module)
    spec = f"torchvision:{argument}"
    version = weights_hash(module, digest(name, query, SCORE_THRESHOLD))
    threshold = f"scores from {SCORE_THRESHOLD:g}" if lowered else "its own score threshold"
    say(f"{spec} resizes images itself; classes: {classes.about}; {threshold}, its own suppression")
    device = device_of(compute_options().device)
    return Model(
        spec,
        _forward(spec, module.to(device), classes, device),
        labels=classes.names,
        version=version,
        output="boxes",
        backend=Backend("torch", device),
        input={"words": "resized and normalised by torchvision's own transform of the model"},
    )


def _classes(query: str) -> Classes:
    key, _, value = query.partition("=")
    if not query:
        return classes_of("coco91", "model torchvision")
    if key != "labels" or not Path(value).is_file():
        raise SoritesError(
            f"model torchvision: expected ?labels=FILE with one class name per line, got ?{query}"
        )
    names = [
        line.strip() for line in Path(value).read_text(encoding="utf-8-sig").splitlines() if line.strip()
    ]
    return classes_of({i + 1: label for i, label in enumerate(names)}, value)


def _refuse_without_operators(library: Any) -> None:
    """Raise an error if torchvision's compiled operators are missing, which its detectors need."""
    import torch

    try:
        library.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (RuntimeError, AttributeError) as error:
        raise SoritesError(
            f"model torchvision: the operators of torchvision {library.__version__} do not load with torch"
            f" {torch.__version__}: one is built for CUDA and the other is not, or their versions do not"
            " match. Install matching releases and builds of both, or export the detector and use"
            " boxes:PATH.onnx."
        ) from error


def _check_name(library: Any, name: str) -> None:
    available = library.models.list_models(module=library.models.detection)
    if name not in available:
        known = [*available, *classifiers.names(library)]
        raise UnknownName("model of torchvision", name, known, f"Its detectors: {', '.join(available)}.")


def _load(library: Any, name: str, weights: str, classes: Classes) -> Any:
    count = 91 if classes.places is None else len(classes.places)
    if not Path(weights).is_file():
        return _published(library, name, weights)
    state = classifiers.state_of(weights, "the detector's state_dict")
    module = library.models.get_model(name, weights=None, weights_backbone=None, num_classes=count)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SoritesError(
            f"{weights} cannot be loaded as the weights of torchvision:{name} with {count} classes (including"
            f" the background): {reason}. For other classes, pass ?labels=FILE."
        ) from error
    return module


def _published(library: Any, name: str, weights: str) -> Any:
    tags = [tag.name for tag in library.models.get_model_weights(name)]
    if weights not in (*tags, "DEFAULT"):
        raise SoritesError(
            f"no weights file {weights}, and {name} has no published weights of that name; available:"
            f" {', '.join(tags)}"
        )
    return classifiers.published(library, name, weights)


def _lower_threshold(module: Any) -> bool:
    """Lower the score threshold of a detector if possible; return whether it was."""
    parts: tuple[Any, ...] = (module, getattr(module, "roi_heads", None))
    holders = [part for part in parts if hasattr(part, "score_thresh")]
    for part in holders:
        part.score_thresh = SCORE_THRESHOLD
    return bool(holders)


def _forward(name: str, module: nn.Module, classes: Classes, device: str) -> Any:
    import torch

    def run(image: NDArray[Any]) -> Any:
        pixels = torch.from_numpy(np.array(image.transpose(2, 0, 1), order="C")).float().div(255)
        with torch.inference_mode(), reproducible(device):
            found = module([pixels.to(device)])[0]
        return {part: found[part].cpu() for part in ("boxes", "scores", "labels")}

    def forward(images: list[NDArray[Any]]) -> Outputs:
        return Outputs(boxes=boxes_of(name, [run(image) for image in images], len(images), classes))

    return forward
