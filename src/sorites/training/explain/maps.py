"""Grad-CAM and guided Grad-CAM (Selvaraju et al. 2017) of the models of Sorites.

Pictures are of any size, as a model takes them; ``targets`` are columns of the model's logits, by default those of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Picture
from sorites.errors import SoritesError
from sorites.torch_tools import one_thread
from sorites.training.explain.guided import guided
from sorites.training.explain.layers import Layer, chosen_layer
from sorites.training.inside import device_of, logits_of, module_of, without_weight_gradients

if TYPE_CHECKING:
    import torch

Maps = NDArray[np.float32]
VERB = "an explanation"


def grad_cam(
    model: Model,
    pictures: Sequence[Picture],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> Maps:
    """Return where the evidence for a class lies, N x h x w in the size of the layer's maps, 0 where there is none.

    ``layer`` names a layer of the network; the default is the last one with maps before they are pooled.
    """
    module, inputs = _ready(model, pictures, framed)
    with one_thread(), without_weight_gradients(module):
        chosen = chosen_layer(module, inputs[:1], layer, model.name)
        return _numbers(_cam(module, inputs, _targets(module, inputs, targets), chosen))


def guided_backprop(
    model: Model, pictures: Sequence[Picture], targets: Sequence[int] | None = None, *, framed: bool = False
) -> Maps:
    """Return the guided gradient of a class at the model's input, N x H x W x 3."""
    module, inputs = _ready(model, pictures, framed)
    with one_thread(), without_weight_gradients(module):
        return _numbers(_guided(module, inputs, _targets(module, inputs, targets)))


def guided_grad_cam(
    model: Model,
    pictures: Sequence[Picture],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> Maps:
    """Return the guided gradient times Grad-CAM, which is enlarged to the model's input: N x H x W x 3."""
    return explained(model, pictures, targets, layer=layer, framed=framed)[1]


def explained(
    model: Model,
    pictures: Sequence[Picture],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> tuple[Maps, Maps, str]:
    """Return Grad-CAM enlarged to the model's input (N x H x W), guided Grad-CAM (N x H x W x 3), and the layer's name."""
    module, inputs = _ready(model, pictures, framed)
    with one_thread(), without_weight_gradients(module):
        chosen, at = chosen_layer(module, inputs[:1], layer, model.name), _targets(module, inputs, targets)
        cam = enlarged(_cam(module, inputs, at, chosen), (inputs.shape[1], inputs.shape[2]))
        fine = _guided(module, inputs, at) * cam[..., None]
        return _numbers(cam), _numbers(fine), chosen.name


def enlarged(maps: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return maps N x h x w at a larger size, bilinearly."""
    from torch.nn import functional

    return functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _ready(model: Model, pictures: Sequence[Picture], framed: bool) -> tuple[Any, torch.Tensor]:
    """Return the torch module of a model, and the pictures at its input in 0..255."""
    import torch

    module = module_of(model, VERB)
    prepared = np.stack([model.prepare(np.array(picture), framed) for picture in pictures]).astype(np.float32)
    return module, torch.from_numpy(prepared).to(device_of(module))


def _targets(module: Any, inputs: torch.Tensor, targets: Sequence[int] | None) -> torch.Tensor:
    """Return the column of each picture's class; of one that the model does not have is an error."""
    import torch

    with torch.no_grad():
        logits = logits_of(module, inputs)
    if targets is None:
        return logits.argmax(1)
    wrong = next((target for target in targets if not 0 <= target < logits.shape[1]), None)
    if wrong is not None or len(targets) != len(inputs):
        came = f"{len(targets)} targets" if wrong is None else str(wrong)
        raise SoritesError(f"wanted one target of 0 to {logits.shape[1] - 1} for each of {len(inputs)} pictures, got {came}")
    return torch.tensor(list(targets), device=logits.device)


def _cam(module: Any, inputs: torch.Tensor, targets: torch.Tensor, layer: Layer) -> torch.Tensor:
    """Return the maps weighted by their mean gradients, negative parts cut: N x h x w."""
    import torch

    held: list[torch.Tensor] = []

    def hook(_: Any, __: Any, given: torch.Tensor) -> torch.Tensor:
        held.append(given.detach().requires_grad_())
        return held[-1].clone()  # the next layer may write into what it is given

    registered = layer.module.register_forward_hook(hook)
    try:
        with torch.enable_grad():
            score = logits_of(module, inputs).gather(1, targets[:, None]).sum()
            (gradient,) = torch.autograd.grad(score, held[-1])
    finally:
        registered.remove()
    weights = layer.first(gradient).mean((2, 3), keepdim=True)
    return (weights * layer.first(held[-1].detach())).sum(1).relu()


def _guided(module: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    import torch

    with torch.enable_grad(), guided(module):
        pixels = inputs.detach().clone().requires_grad_()
        score = logits_of(module, pixels).gather(1, targets[:, None]).sum()
        (gradient,) = torch.autograd.grad(score, pixels)
    return gradient


def _numbers(tensor: torch.Tensor) -> Maps:
    return np.asarray(tensor.detach().float().cpu().numpy())
