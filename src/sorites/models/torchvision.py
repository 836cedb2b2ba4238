"""Classifiers of torchvision: ``torchvision:NAME@weights.pth``, a tag of published weights, or ``@random``.

Size, resizing and normalisation are those of torchvision's preset for the weights. A file has no preset: the
one of the default weights is used unless ``?preset=TAG`` names another. torchvision's compiled operators are
not needed.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sorites.core import Model
from sorites.core.compute.torch_tools import on_this_thread, one_thread
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import imagenet
from sorites.io.hub import download_error
from sorites.io.readers import lines
from sorites.models.options import options
from sorites.models.preprocess import Input
from sorites.models.timm import RANDOM, agrees
from sorites.models.torch_module import linear_head, torch_model, with_features

# Their published weights expect an input transform that depends on the weights and not on the network.
ONLY_PUBLISHED = ("googlenet", "inception_v3")


def names(library: Any) -> list[str]:
    """Return the names of torchvision's classifiers."""
    return list(library.models.list_models(module=library.models))


def classifier(library: Any, spec: str, name: str, weights: str, query: str) -> Model:
    """Return a classifier.

    Args:
        library: The module ``torchvision``.
        spec: The name of the model in the table.
        name: Its name in torchvision.
        weights: A file, a tag of published weights, or ``random``.
        query: Options: ``labels=FILE`` and ``preset=TAG``.
    """
    given = options("torchvision", query, ("labels", "preset"))
    tags = library.models.get_model_weights(name).__members__
    preset = _preset(name, weights, tags, given.get("preset"))
    network = load(library, name, weights, preset)
    wants = input_of(preset, spec)
    head = _last_linear(network)
    module = None if head is None else with_features(network, _with_input_of(head))
    if module is not None and not agrees(module, network, wants):
        module = head = None
    files = [Path(weights)] if Path(weights).is_file() else []
    class_ids = _labels(given.get("labels"), network, wants)
    return torch_model(
        spec,
        network if module is None else module,
        wants,
        class_ids,
        None if head is None else linear_head(head),
        files,
    )


def _preset(name: str, weights: str, tags: Mapping[str, Any], asked: str | None) -> Any:
    """Return the published weights whose preprocessing is used; note other possible ones."""
    if asked is not None and asked not in tags:
        raise SoritesError(f"model torchvision: {name} has the presets {', '.join(tags)}, not {asked}")
    if asked is None and weights in tags:
        return tags[weights]
    chosen = tags[asked or "DEFAULT"]
    inputs = {tag: input_of(each, name) for tag, each in tags.items()}
    others = [tag for tag, wants in inputs.items() if wants != inputs[chosen.name]]
    if asked is None and others and weights != RANDOM:
        warnings.warn(
            Notice(
                f"torchvision:{name}: {weights} does not say how images are prepared; {chosen.name} is used,"
                f" and {', '.join(others)} differ. If the weights are of these, add ?preset={others[0]}",
                code="preset_assumed",
            ),
            stacklevel=2,
        )
    return chosen


def load(library: Any, name: str, weights: str, preset: Any) -> Any:
    """Return the torch network in eval mode, with the weights of a file, published ones, or random ones."""
    if weights in library.models.get_model_weights(name).__members__:
        return published(library, name, weights).eval()
    if name in ONLY_PUBLISHED:
        raise SoritesError(
            f"model torchvision: {name} takes published weights only (torchvision:{name}@DEFAULT), because"
            f" its input depends on them. Use timm:{name}@{weights}, or export it to ONNX"
        )
    import torch

    state = None if weights == RANDOM else state_of(weights, "its state_dict")
    options = {} if state is None else {"num_classes": _classes(state)}
    if name.startswith("vit_"):
        options["image_size"] = preset.transforms().crop_size[0]
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(0)
        network = library.models.get_model(name, weights=None, **options)
    if state is not None:
        _fill(network, state, f"torchvision:{name}", weights)
    return network.eval()


def published(library: Any, name: str, tag: str) -> Any:
    """Return a network with published weights, which are downloaded."""
    try:
        return library.models.get_model(name, weights=tag)
    except Exception as error:  # a missing network and a refusing host raise different errors
        instead = f"Use a file: torchvision:{name}@weights.pth"
        raise download_error(f"the published weights of torchvision:{name}", error, instead) from error


def _fill(network: Any, state: dict[str, Any], what: str, path: str) -> None:
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SoritesError(f"{path} cannot be loaded as the weights of {what}: {reason}") from error


def state_of(path: str, what: str) -> dict[str, Any]:
    """Return the tensors of a torch file.

    Args:
        path: The file.
        what: What to save instead of more than tensors.
    """
    import torch

    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise SoritesError(f"no weights file {path}. Expected a torch file with a state_dict.") from error
    except pickle.UnpicklingError as error:
        raise SoritesError(
            f"{path} contains more than tensors and is not loaded. Save only {what}."
        ) from error
    except Exception as error:  # torch raises many kinds of errors for truncated or invalid files
        reason = str(error).strip().split("\n")[0]
        raise SoritesError(
            f"{path} is not a weights file ({reason}). Expected a torch file with a state_dict."
        ) from error


def _classes(state: dict[str, Any]) -> int:
    """Return the number of classes: the rows of the last weights."""
    weights = [value for key, value in state.items() if key.endswith("weight")]
    return int(weights[-1].shape[0]) if weights else 0


def input_of(preset: Any, name: str) -> Input:
    """Return the input of published weights, read from torchvision's preset."""
    wants = preset.transforms()
    size, resize = wants.crop_size[0], wants.resize_size[0]
    share = size / resize
    if math.floor(size / share) != resize:  # rounding
        share = math.nextafter(share, 0.0)
    settings = {"size": size, "crop_pct": share, "mean": tuple(wants.mean), "std": tuple(wants.std)}
    return Input.read({**settings, "filter": wants.interpolation.value}, f"torchvision:{name}")


def _labels(path: str | None, network: Any, wants: Input) -> Sequence[str] | None:
    if path is not None:
        return [line.strip() for line in lines(Path(path), "one class name per line") if line.strip()]
    import torch

    with torch.inference_mode(), one_thread():
        classes = network(torch.zeros(1, 3, *wants.size)).shape[1]
    return imagenet().ids if classes == 1000 else None


def _last_linear(network: Any) -> Any:
    """Return the last layer if it is linear."""
    from torch import nn

    layers = [layer for layer in network.modules() if not list(layer.children())]
    return layers[-1] if layers and isinstance(layers[-1], nn.Linear) else None


def _with_input_of(layer: Any) -> Any:
    """Return a function of network and input that gives logits and the input of ``layer``."""

    def parts(network: Any, x: Any) -> tuple[Any, Any]:
        seen: list[Any] = []
        hook = layer.register_forward_pre_hook(on_this_thread(lambda _, given: seen.append(given[0])))
        try:
            return network(x), seen[-1]
        finally:
            hook.remove()

    return parts
