"""Use any timm classifier by name: ``timm:resnet50.a1_in1k``, ``timm:NAME@PATH`` with weights from a file,
or ``timm:NAME@random`` with random weights.

Size, crop, filter and normalisation are those of the published weights. A weights file is safetensors or
a torch zip that contains only tensors; without a file, the published weights are downloaded.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.core import MODELS, Model, add_model
from sorites.core.compute.torch_tools import import_with_torchvision, one_thread
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.io.hub import download_error, hub
from sorites.io.paths import is_file
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model, with_features

if TYPE_CHECKING:
    import torch
    from torch import nn

# Instead of a weights path: random weights from a fixed seed.
RANDOM = "random"
# A name that may be timm's: no path and no spec.
_BARE_NAME = re.compile(r"[a-z][a-z0-9_]+(\.[a-z0-9_]+)?")


@add_model
def timm(argument: str | None) -> Model:
    """Run a timm classifier (timm:NAME[@PATH]) with published weights, weights from a file, or random
    weights (timm:NAME@random).
    """
    if argument is None:
        raise SoritesError("model timm: expected a name: timm:resnet50 or timm:resnet50@weights.safetensors")
    name, _, path = argument.partition("@")
    library = import_with_torchvision("timm", "model timm", "timm")
    network = load(library, name, path)
    wants = input_of(library, name, network)
    labels = imagenet().ids if network.num_classes == 1000 else None
    spec = f"timm:{argument}"
    module = one_pass(network, wants)
    head = None if module is None else linear_head(network.get_classifier())
    files = [Path(path)] if path not in ("", RANDOM) else []
    return torch_model(spec, network if module is None else module, wants, labels, head, files)


def _guess(name: str) -> str | None:
    """Return the spec of a bare name of timm's: ``resnet50`` is ``timm:resnet50``."""
    if not _BARE_NAME.fullmatch(name):
        return None
    try:
        library = import_with_torchvision("timm", "model timm", "timm")
    except SoritesError:
        return None
    return f"timm:{name}" if library.is_model(name) else None


MODELS.add_guess(_guess)


def load(library: Any, name: str, path: str = "") -> Any:
    """Return the torch network in eval mode, with published weights, those of a file, or random ones."""
    check_name(library, name)
    if path == RANDOM:
        return _random(library, name).eval()
    return (_from_file(library, name, path) if path else _published(library, name)).eval()


def _random(library: Any, name: str) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(0)
        return library.create_model(name, pretrained=False)


def check_name(library: Any, name: str) -> None:
    """Raise ``UnknownName`` if timm has no such model; names with a colon refer to a hub."""
    if ":" not in name and not library.is_model(name):
        raise UnknownName("timm model", name, library.list_models())


def _published(library: Any, name: str) -> Any:
    try:
        with hub():
            return library.create_model(name, pretrained=True)
    # Missing weights, a missing network and a refusing hub raise different exceptions.
    except Exception as error:
        instead = f"Use a file: timm:{name}@weights.safetensors, or random weights: timm:{name}@random"
        raise download_error(f"the published weights of timm:{name}", error, instead) from error


def _from_file(library: Any, name: str, path: str) -> Any:
    state = _weights(library, path)
    try:
        classes = _classes(library.get_pretrained_cfg(name), state)
        network = library.create_model(
            name, pretrained=False, **({} if classes is None else {"num_classes": classes})
        )
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SoritesError(f"{path} cannot be loaded as the weights of timm:{name}: {reason}") from error
    return network


def _weights(library: Any, path: str) -> dict[str, Any]:
    if not is_file(path):
        raise SoritesError(f"no weights file {path}. Expected a .safetensors file or a torch zip of tensors.")
    try:
        return dict(library.models.load_state_dict(path, weights_only=True))
    except pickle.UnpicklingError as error:
        raise SoritesError(
            f"{path} contains more than tensors and is not loaded. Save its state_dict as safetensors."
        ) from error
    # torch and safetensors raise many kinds of errors for truncated or invalid files.
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise SoritesError(
            f"{path} is not a weights file ({reason}). Expected safetensors or a torch zip of tensors."
        ) from error


def _classes(published: Any, state: dict[str, Any]) -> int | None:
    """Return the number of classes of the classifier in the file, or None if its name is unknown."""
    classifier = getattr(published, "classifier", None)
    weight = state.get(f"{classifier}.weight")
    return None if weight is None else int(weight.shape[0])


def input_of(library: Any, name: str, network: Any) -> Input:
    """Return the input of the published weights."""
    config = library.data.resolve_model_data_config(network)
    _, height, width = config["input_size"]
    return Input.read(
        {
            "size": (height, width),
            "mean": config["mean"],
            "std": config["std"],
            "crop_pct": config["crop_pct"],
            "filter": config["interpolation"],
            "mode": config["crop_mode"],
        },
        f"timm:{name}",
    )


def _parts(network: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    features = network.forward_head(network.forward_features(x), pre_logits=True)
    return network.get_classifier()(features), features


def one_pass(network: Any, wants: Input) -> nn.Module | None:
    """Return a module that gives logits and features, or None if they cannot be separated."""
    combined = with_features(network, _parts)
    return combined if agrees(combined, network, wants) else None


def agrees(combined: nn.Module, network: nn.Module, wants: Input) -> bool:
    """Return whether features and classifier give the logits of the network, which distilled networks and
    some others do not.
    """
    import torch

    x = torch.randn(1, 3, *wants.size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), one_thread():
        expected = network(x)
        try:
            logits, features = combined(x)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
    return bool(
        features.ndim == 2 and logits.shape == expected.shape and torch.allclose(logits, expected, atol=1e-5)
    )
