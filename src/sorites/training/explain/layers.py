"""The layers of a network that give maps: found by running it once, and named as the network names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sorites.errors import SoritesError, UnknownName

if TYPE_CHECKING:
    import torch

OURS = ("Graph", "OnePass", "Restricted")
"""The wrappers that the toolkit lays around a network; names of layers are those inside them."""
SAME = ("Identity", "Dropout", "DropPath", "Dropout2d")
"""Modules that pass a map on as it is."""


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
    """List the layers that give maps larger than one pixel, in the order in which they run; ``inputs`` go to the module."""
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
            f"no layer of {model} gives maps (N x C x h x w): Grad-CAM is for networks with convolutions, not for plain "
            "transformers or layers that see the whole picture at once"
        )
    if name is not None:
        known = {layer.name: layer for layer in found}
        if name not in known:
            listed = ", ".join(list(known)[-12:])
            raise UnknownName(f"layer of {model} with maps", name, known, f"The last of its {len(known)} are {listed}.")
        return known[name]
    own = [layer for layer in found if "Pool" not in type(layer.module).__name__ and type(layer.module).__name__ not in SAME]
    return (own or found)[-1]
