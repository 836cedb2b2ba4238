"""Grad-CAM and guided Grad-CAM (Selvaraju et al. 2017).

Images can have any size the model accepts. ``targets`` are columns of the model's logits, by default its
predictions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, Model
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import on_this_thread
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.models.torch_module import logits_of, module_device, module_of, without_weight_gradients

if TYPE_CHECKING:
    import torch

# Guided backpropagation (Springenberg et al. 2015).


# Lower-case class names of activation modules in torch, torchvision, timm and efficientnet packages.
ACTIVATION_MODULES = frozenset(
    {
        "relu",
        "relu6",
        "leakyrelu",
        "elu",
        "celu",
        "silu",
        "swish",
        "swishme",
        "memoryefficientswish",
        "gelu",
        "gelutanh",
        "quickgelu",
        "hardswish",
        "hardswishme",
        "mish",
        "mishme",
    }
)
# The activation functions of torch.
ACTIVATION_FUNCTIONS = (
    "relu",
    "relu_",
    "relu6",
    "leaky_relu",
    "elu",
    "celu",
    "silu",
    "gelu",
    "hardswish",
    "mish",
)


@contextlib.contextmanager
def guided(module: Any) -> Iterator[None]:
    """Use guided gradients at all activations of a module, both modules and torch functions."""
    acts = [part for part in module.modules() if type(part).__name__.lower() in ACTIVATION_MODULES]
    gate = on_this_thread(lambda _, __, output: _guided_gate()(output))
    hooks = [part.register_forward_hook(gate) for part in acts]
    try:
        with _guided_functions()():
            yield
    finally:
        for hook in hooks:
            hook.remove()


@functools.cache
def _guided_gate() -> Any:
    """Return an identity function whose backward pass keeps positive gradients of positive activations only.

    It is idempotent, so an activation module that calls a torch function may be gated twice.
    """
    import torch

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(output > 0)
            return output.clone()

        @staticmethod
        def backward(ctx: Any, *above: torch.Tensor) -> torch.Tensor:
            passed: torch.Tensor = above[0].clamp(min=0) * ctx.saved_tensors[0]
            return passed

    return Gate.apply


@functools.cache
def _guided_functions() -> Any:
    """Return a torch function mode that applies the gate to activation functions."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    namespaces = (functional, torch, torch.Tensor)
    activations = {
        getattr(namespace, name)
        for namespace in namespaces
        for name in ACTIVATION_FUNCTIONS
        if hasattr(namespace, name)
    }

    class Guided(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            return _guided_gate()(output) if func in activations else output

    return Guided


# Layers with feature maps, found by running the network once.


# Wrappers of this package around a network; layer names are relative to the network inside.
WRAPPERS = ("Graph", "OnePass", "Restricted")
# Modules that pass maps through unchanged.
PASS_THROUGH = ("Identity", "Dropout", "DropPath", "Dropout2d")


@dataclass(frozen=True)
class Layer:
    """A layer with feature maps: N x C x h x w, or N x h x w x C if ``channels_last``."""

    name: str
    module: Any
    shape: tuple[int, ...]
    channels_last: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the maps."""
        return (self.shape[1], self.shape[2]) if self.channels_last else (self.shape[2], self.shape[3])

    def first(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps with channels first."""
        return maps.permute(0, 3, 1, 2) if self.channels_last else maps


def network_of(module: Any) -> Any:
    """Return the network inside the wrappers of this package."""
    while type(module).__name__ in WRAPPERS:
        (module,) = module.children()
    return module


def layers(module: Any, inputs: torch.Tensor) -> list[Layer]:
    """Return all layers with maps larger than one pixel, in execution order."""
    import torch

    layers_by_name: dict[str, Layer] = {}

    def hook_for(name: str) -> Any:
        def hook(layer: Any, _: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.ndim == 4:
                shape = tuple(output.shape)
                last = shape[1] == shape[2] != shape[3]
                candidate = Layer(name, layer, shape, last)
                if min(candidate.size) > 1:
                    layers_by_name.pop(name, None)  # a module that runs twice counts where it ran last
                    layers_by_name[name] = candidate

        return on_this_thread(hook)

    named = [(name, layer) for name, layer in network_of(module).named_modules() if name]
    hooks = [layer.register_forward_hook(hook_for(name)) for name, layer in named]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(layers_by_name.values())


def chosen_layer(module: Any, inputs: torch.Tensor, name: str | None, model: str) -> Layer:
    """Return a layer by name, by default the last one with maps before pooling."""
    candidates = layers(module, inputs)
    if not candidates:
        raise SoritesError(
            f"no layer of {model} has feature maps (N x C x h x w). Grad-CAM needs a network with "
            "convolutions, not a plain transformer or a fully connected network; for these pass "
            f"{option('method', 'rise')}."
        )
    if name is not None:
        by_name = {layer.name: layer for layer in candidates}
        if name not in by_name:
            listed = ", ".join(list(by_name)[-12:])
            raise UnknownName(
                f"layer of {model} with maps", name, by_name, f"The last of its {len(by_name)} are {listed}."
            )
        return by_name[name]
    unpooled = [
        layer
        for layer in candidates
        if "Pool" not in type(layer.module).__name__ and type(layer.module).__name__ not in PASS_THROUGH
    ]
    return (unpooled or candidates)[-1]


Maps = NDArray[np.float32]
VERB = "an explanation"


def grad_cam(
    model: Model,
    images: Sequence[ImageU8],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> Maps:
    """Return the evidence for a class, N x h x w at the size of the layer's maps; 0 means none.

    Args:
        model: A model with a torch module.
        images: Images of any size.
        targets: Columns of the logits; by default the predictions.
        layer: Name of a layer; by default the last one with maps before pooling.
        framed: Whether images are scaled to the input without cropping.
    """
    module, inputs = _prepare(model, images, framed)
    with reproducible(inputs.device), without_weight_gradients(module):
        chosen = chosen_layer(module, inputs[:1], layer, model.name)
        return _to_numpy(_cam(module, inputs, _targets(module, inputs, targets), chosen))


def guided_backprop(
    model: Model, images: Sequence[ImageU8], targets: Sequence[int] | None = None, *, framed: bool = False
) -> Maps:
    """Return the guided gradient of a class at the model's input, N x H x W x 3."""
    module, inputs = _prepare(model, images, framed)
    with reproducible(inputs.device), without_weight_gradients(module):
        return _to_numpy(_guided(module, inputs, _targets(module, inputs, targets)))


def guided_grad_cam(
    model: Model,
    images: Sequence[ImageU8],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> Maps:
    """Return the guided gradient times Grad-CAM upsampled to the model's input, N x H x W x 3."""
    return explained(model, images, targets, layer=layer, framed=framed)[1]


def explained(
    model: Model,
    images: Sequence[ImageU8],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> tuple[Maps, Maps, str]:
    """Return upsampled Grad-CAM (N x H x W), guided Grad-CAM (N x H x W x 3), and the layer's name."""
    module, inputs = _prepare(model, images, framed)
    with reproducible(inputs.device), without_weight_gradients(module):
        chosen, at = chosen_layer(module, inputs[:1], layer, model.name), _targets(module, inputs, targets)
        cam = enlarged(_cam(module, inputs, at, chosen), (inputs.shape[1], inputs.shape[2]))
        fine = _guided(module, inputs, at) * cam[..., None]
        return _to_numpy(cam), _to_numpy(fine), chosen.name


def enlarged(maps: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Upsample maps N x h x w bilinearly."""
    from torch.nn import functional

    return functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _prepare(model: Model, images: Sequence[ImageU8], framed: bool) -> tuple[Any, torch.Tensor]:
    """Return a model's torch module, and the images at its input in 0..255."""
    import torch

    module = module_of(model, VERB)
    prepared = np.stack([model.prepare(np.array(image), framed) for image in images]).astype(np.float32)
    return module, torch.from_numpy(prepared).to(module_device(module))


def _targets(module: Any, inputs: torch.Tensor, targets: Sequence[int] | None) -> torch.Tensor:
    """Return the target column of each image."""
    import torch

    with torch.no_grad():
        logits = logits_of(module, inputs)
    if targets is None:
        return logits.argmax(1)
    invalid = next((target for target in targets if not 0 <= target < logits.shape[1]), None)
    if invalid is not None or len(targets) != len(inputs):
        received = f"{len(targets)} targets" if invalid is None else str(invalid)
        raise SoritesError(
            f"Expected one target from 0 to {logits.shape[1] - 1} for each of {len(inputs)} images, "
            f"got {received}"
        )
    return torch.tensor(list(targets), device=logits.device)


def _cam(module: Any, inputs: torch.Tensor, targets: torch.Tensor, layer: Layer) -> torch.Tensor:
    """Return the maps weighted by their mean gradients, without negative parts: N x h x w."""
    import torch

    maps: list[torch.Tensor] = []

    def hook(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        maps.append(output.detach().requires_grad_())
        return maps[-1].clone()  # the next layer may modify its input in place

    registered = layer.module.register_forward_hook(on_this_thread(hook))
    try:
        with torch.enable_grad():
            score = logits_of(module, inputs).gather(1, targets[:, None]).sum()
            (gradient,) = torch.autograd.grad(score, maps[-1])
    finally:
        registered.remove()
    weights = layer.first(gradient).mean((2, 3), keepdim=True)
    return (weights * layer.first(maps[-1].detach())).sum(1).relu()


def _guided(module: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    import torch

    with torch.enable_grad(), guided(module):
        pixels = inputs.detach().clone().requires_grad_()
        score = logits_of(module, pixels).gather(1, targets[:, None]).sum()
        (gradient,) = torch.autograd.grad(score, pixels)
    return gradient


def _to_numpy(tensor: torch.Tensor) -> Maps:
    return np.asarray(tensor.detach().float().cpu().numpy())


# Rendering.


# Color scale from no evidence to the most: blue, cyan, green, yellow, red.
HEAT_COLORS = np.array(
    [[20, 30, 110], [30, 140, 190], [120, 205, 120], [250, 210, 60], [215, 40, 35]], np.float32
)
# Opacity of the heat where there is no evidence.
MIN_HEAT_OPACITY = 0.35
# Percentile of the guided gradient that is drawn at full contrast.
SATURATION_PERCENTILE = 98.0


def heat(image: NDArray[np.float32], cam: NDArray[np.float32]) -> ImageU8:
    """Overlay an image (H x W x 3 in 0..255) with its map (H x W), scaled to the map's maximum."""
    top = float(cam.max())
    share = cam / top if top > 0 else np.zeros_like(cam)
    at = share * (len(HEAT_COLORS) - 1)
    low = np.clip(at.astype(int), 0, len(HEAT_COLORS) - 2)
    colour = HEAT_COLORS[low] + (HEAT_COLORS[low + 1] - HEAT_COLORS[low]) * (at - low)[..., None]
    over = (MIN_HEAT_OPACITY + 0.3 * share)[..., None]
    grey = image.mean(-1, keepdims=True) * 0.6 + image * 0.4
    return _to_uint8((1 - over) * grey + over * colour)


def relief(guided: NDArray[np.float32]) -> ImageU8:
    """Draw a guided gradient (H x W x 3) around mid-grey: brighter means evidence for the class."""
    strong = float(np.percentile(np.abs(guided), SATURATION_PERCENTILE)) or float(np.abs(guided).max())
    return _to_uint8(127.5 + 127.5 * (guided / strong if strong > 0 else guided))


def _to_uint8(values: NDArray[np.float32]) -> ImageU8:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
