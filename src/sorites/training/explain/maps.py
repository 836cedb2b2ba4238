"""Grad-CAM and guided Grad-CAM (Selvaraju et al. 2017) of the models of Sorites.

Images are of any size, as a model takes them; ``targets`` are columns of the model's logits, by
default those of its answers.
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
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.torch_tools import one_thread
from sorites.models.torch_module import logits_of, module_of, without_weight_gradients
from sorites.models.torch_module import module_device as device_of

if TYPE_CHECKING:
    import torch

# Guided backpropagation (Springenberg et al. 2015): what speaks for an answer, followed back to the
# pixels.


# Class names of activations in torch, torchvision, timm and efficientnet packages, in small
# letters.
MODULES = frozenset(
    {
        "relu", "relu6", "leakyrelu", "elu", "celu", "silu", "swish", "swishme", "memoryefficientswish", "gelu", "gelutanh",
        "quickgelu", "hardswish", "hardswishme", "mish", "mishme",
    }
)  # fmt: skip
# The same as functions of torch.
FUNCTIONS = ("relu", "relu_", "relu6", "leaky_relu", "elu", "celu", "silu", "gelu", "hardswish", "mish")


@contextlib.contextmanager
def guided(module: Any) -> Iterator[None]:
    """Guide the gradients of a module inside: at activations that are modules, and at those that
    are called as functions.
    """
    acts = [part for part in module.modules() if type(part).__name__.lower() in MODULES]
    hooks = [part.register_forward_hook(lambda _, __, given: _gate()(given)) for part in acts]
    try:
        with _functions()():
            yield
    finally:
        for hook in hooks:
            hook.remove()


@functools.cache
def _gate() -> Any:
    """Return a function that gives back an activation's output and lets back only what is positive,
    where it fires.

    Applied twice it does the same, so that a module that calls a function of torch may be met as both.
    """
    import torch

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(given > 0)
            return given.clone()

        @staticmethod
        def backward(ctx: Any, *above: torch.Tensor) -> torch.Tensor:
            passed: torch.Tensor = above[0].clamp(min=0) * ctx.saved_tensors[0]
            return passed

    return Gate.apply


@functools.cache
def _functions() -> Any:
    """Return a mode of torch in which the activations among its functions are guided."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    places = (functional, torch, torch.Tensor)
    known = {getattr(place, name) for place in places for name in FUNCTIONS if hasattr(place, name)}

    class Guided(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = func(*args, **(kwargs or {}))
            return _gate()(given) if func in known else given

    return Guided


# The layers of a network that give maps: found by running it once, and named as the network names them.


# The wrappers that the toolkit lays around a network; names of layers are those inside them.
OURS = ("Graph", "OnePass", "Restricted")
# Modules that pass a map on as it is.
SAME = ("Identity", "Dropout", "DropPath", "Dropout2d")


@dataclass(frozen=True)
class Layer:
    """A layer that gives maps: N x C x h x w, or N x h x w x C where ``channels_last``."""

    name: str
    module: Any
    shape: tuple[int, ...]
    channels_last: bool

    @property
    def size(self) -> tuple[int, int]:
        """The height and width of its maps."""
        return (self.shape[1], self.shape[2]) if self.channels_last else (self.shape[2], self.shape[3])

    def first(self, maps: torch.Tensor) -> torch.Tensor:
        """Return its maps with the channels first."""
        return maps.permute(0, 3, 1, 2) if self.channels_last else maps


def network_of(module: Any) -> Any:
    """Return the network inside the wrappers of the toolkit."""
    while type(module).__name__ in OURS:
        (module,) = module.children()
    return module


def layers(module: Any, inputs: torch.Tensor) -> list[Layer]:
    """List the layers that give maps larger than one pixel, in the order in which they run;
    ``inputs`` go to the module.
    """
    import torch

    found: dict[str, Layer] = {}

    def note(name: str) -> Any:
        def hook(layer: Any, _: Any, given: Any) -> None:
            if isinstance(given, torch.Tensor) and given.ndim == 4:
                shape = tuple(given.shape)
                last = shape[1] == shape[2] != shape[3]
                made = Layer(name, layer, shape, last)
                if min(made.size) > 1:
                    found.pop(name, None)  # a module that runs twice stands where it ran last
                    found[name] = made

        return hook

    named = [(name, layer) for name, layer in network_of(module).named_modules() if name]
    hooks = [layer.register_forward_hook(note(name)) for name, layer in named]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())


def chosen_layer(module: Any, inputs: torch.Tensor, name: str | None, model: str) -> Layer:
    """Return the layer of that name; without one, the last that gives maps before they are pooled."""
    found = layers(module, inputs)
    if not found:
        raise SoritesError(
            f"no layer of {model} gives maps (N x C x h x w): Grad-CAM is for networks with convolutions, not"
            " for plain transformers or layers that see the whole image at once"
        )
    if name is not None:
        known = {layer.name: layer for layer in found}
        if name not in known:
            listed = ", ".join(list(known)[-12:])
            raise UnknownName(
                f"layer of {model} with maps", name, known, f"The last of its {len(known)} are {listed}."
            )
        return known[name]
    own = [
        layer
        for layer in found
        if "Pool" not in type(layer.module).__name__ and type(layer.module).__name__ not in SAME
    ]
    return (own or found)[-1]


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
    """Return where the evidence for a class lies, N x h x w in the size of the layer's maps, 0
    where there is none.

    ``layer`` names a layer of the network; the default is the last one with maps before they are pooled.
    """
    module, inputs = _ready(model, images, framed)
    with one_thread(), without_weight_gradients(module):
        chosen = chosen_layer(module, inputs[:1], layer, model.name)
        return _numbers(_cam(module, inputs, _targets(module, inputs, targets), chosen))


def guided_backprop(
    model: Model, images: Sequence[ImageU8], targets: Sequence[int] | None = None, *, framed: bool = False
) -> Maps:
    """Return the guided gradient of a class at the model's input, N x H x W x 3."""
    module, inputs = _ready(model, images, framed)
    with one_thread(), without_weight_gradients(module):
        return _numbers(_guided(module, inputs, _targets(module, inputs, targets)))


def guided_grad_cam(
    model: Model,
    images: Sequence[ImageU8],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> Maps:
    """Return the guided gradient times Grad-CAM, which is enlarged to the model's input: N x H x W x 3."""
    return explained(model, images, targets, layer=layer, framed=framed)[1]


def explained(
    model: Model,
    images: Sequence[ImageU8],
    targets: Sequence[int] | None = None,
    *,
    layer: str | None = None,
    framed: bool = False,
) -> tuple[Maps, Maps, str]:
    """Return Grad-CAM enlarged to the model's input (N x H x W), guided Grad-CAM (N x H x W x 3),
    and the layer's name.
    """
    module, inputs = _ready(model, images, framed)
    with one_thread(), without_weight_gradients(module):
        chosen, at = chosen_layer(module, inputs[:1], layer, model.name), _targets(module, inputs, targets)
        cam = enlarged(_cam(module, inputs, at, chosen), (inputs.shape[1], inputs.shape[2]))
        fine = _guided(module, inputs, at) * cam[..., None]
        return _numbers(cam), _numbers(fine), chosen.name


def enlarged(maps: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return maps N x h x w at a larger size, bilinearly."""
    from torch.nn import functional

    return functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _ready(model: Model, images: Sequence[ImageU8], framed: bool) -> tuple[Any, torch.Tensor]:
    """Return the torch module of a model, and the images at its input in 0..255."""
    import torch

    module = module_of(model, VERB)
    prepared = np.stack([model.prepare(np.array(image), framed) for image in images]).astype(np.float32)
    return module, torch.from_numpy(prepared).to(device_of(module))


def _targets(module: Any, inputs: torch.Tensor, targets: Sequence[int] | None) -> torch.Tensor:
    """Return the column of each image's class; of one that the model does not have is an error."""
    import torch

    with torch.no_grad():
        logits = logits_of(module, inputs)
    if targets is None:
        return logits.argmax(1)
    wrong = next((target for target in targets if not 0 <= target < logits.shape[1]), None)
    if wrong is not None or len(targets) != len(inputs):
        came = f"{len(targets)} targets" if wrong is None else str(wrong)
        raise SoritesError(
            f"wanted one target of 0 to {logits.shape[1] - 1} for each of {len(inputs)} images, got {came}"
        )
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


# Explanations as images: heat laid over what the model saw, and guided gradients as a relief on grey.


# Colours from no evidence to the most: blue, cyan, green, yellow, red.
STOPS = np.array([[20, 30, 110], [30, 140, 190], [120, 205, 120], [250, 210, 60], [215, 40, 35]], np.float32)
# The share of the heat over the image where there is none, and more by as much as there is.
PALE = 0.35
# The percentile of the guided gradient that is drawn at full strength.
BRIGHTEST = 98.0


def heat(seen: NDArray[np.float32], cam: NDArray[np.float32]) -> ImageU8:
    """Return an image (H x W x 3 in 0..255) under the heat of its map (H x W), which is scaled to
    its own maximum.
    """
    top = float(cam.max())
    share = cam / top if top > 0 else np.zeros_like(cam)
    at = share * (len(STOPS) - 1)
    low = np.clip(at.astype(int), 0, len(STOPS) - 2)
    colour = STOPS[low] + (STOPS[low + 1] - STOPS[low]) * (at - low)[..., None]
    over = (PALE + 0.3 * share)[..., None]
    grey = seen.mean(-1, keepdims=True) * 0.6 + seen * 0.4
    return _rounded((1 - over) * grey + over * colour)


def relief(guided: NDArray[np.float32]) -> ImageU8:
    """Return a guided gradient (H x W x 3) on grey: brighter where more of a colour speaks for the class."""
    strong = float(np.percentile(np.abs(guided), BRIGHTEST)) or float(np.abs(guided).max())
    return _rounded(127.5 + 127.5 * (guided / strong if strong > 0 else guided))


def _rounded(values: NDArray[np.float32]) -> ImageU8:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
