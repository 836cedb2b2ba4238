"""Low-rank adapters on a network, each picture of a batch with severities of its own.

Libraries scale an adapter for a whole batch. Here a layer's answer is ``W x + up(s * down(x))`` with ``s`` per picture, so that
all severities of a seed go through the network together, and 0 adds exactly nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sorites.errors import SoritesError

NOXATTN = re.compile(
    r".*(attn1\.(to_q|to_k|to_v|to_out\.0)|resnets\.\d+\.(conv1|conv2|time_emb_proj|conv_shortcut)|(down|up)samplers\.0\.conv)"
)
"""The layers that the published trainer calls noxattn: all but attention to the text and the embedding of time."""
XATTN = re.compile(r".*attn2\.(to_q|to_k|to_v|to_out\.0)")
METHODS = {"noxattn": (NOXATTN,), "xattn": (XATTN,), "full": (NOXATTN, XATTN)}

Low = tuple[Any, Any]
"""The two matrices of one layer: down (rank x in) and up (out x rank), the scale of training folded into the second."""


def targets(network: Any, method: str) -> list[str]:
    """Return the names of the layers that a method of training adapts, in the network's order."""
    if method not in METHODS:
        raise SoritesError(f"wanted layers among {', '.join(METHODS)}, got {method!r}")
    names = [name for name, _ in network.named_modules() if any(rule.fullmatch(name) for rule in METHODS[method])]
    if not names:
        raise SoritesError(f"this network has no layers to adapt by the method {method}")
    return names


def shapes(layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of down and up for a layer of the network."""
    if hasattr(layer, "kernel_size"):
        return (rank, layer.in_channels, *layer.kernel_size), (layer.out_channels, rank, 1, 1)
    return (rank, layer.in_features), (layer.out_features, rank)


def refuse_others(network: Any, lows: Mapping[str, Low], called: str) -> None:
    """Refuse an adapter that was made for another network, naming the first layer that differs."""
    modules = dict(network.named_modules())
    for name, (down, up) in lows.items():
        layer = modules.get(name)
        if layer is None or not (hasattr(layer, "kernel_size") or hasattr(layer, "in_features")):
            raise SoritesError(f"the slider {called} is for another architecture: this network has no layer {name}")
        wanted = shapes(layer, down.shape[0])
        if (tuple(down.shape), tuple(up.shape)) != wanted:
            got = " and ".join(" x ".join(map(str, low.shape)) for low in (down, up))
            need = " and ".join(" x ".join(map(str, shape)) for shape in wanted)
            raise SoritesError(
                f"the slider {called} is for another architecture: layer {name} wants {need}, the slider has {got}"
            )


def answer(layer: Any, inputs: Any, down: Any, up: Any, scale: Any) -> Any:
    """Return what an adapter adds to a layer's answer: up(scale * down(inputs)), with scale as pictures x ranks."""
    from torch.nn import functional as F

    if hasattr(layer, "kernel_size"):
        low = F.conv2d(inputs, down, None, layer.stride, layer.padding, layer.dilation)
        return F.conv2d(low * scale[:, :, None, None], up)
    low = F.linear(inputs, down)
    return F.linear(low * scale.view(scale.shape[0], *(1,) * (low.ndim - 2), scale.shape[1]), up)


class Dial:
    """The positions of the sliders for each picture of the batch; None switches them off."""

    def __init__(self) -> None:
        self.scales: Any = None
        """Pictures x sliders."""


@contextlib.contextmanager
def attached(network: Any, sliders: Sequence[Mapping[str, Low]]) -> Iterator[Dial]:
    """Attach sliders to a network; what they add is summed, each times its own severity. They are removed afterwards."""
    import torch

    dial, handles, modules = Dial(), [], dict(network.named_modules())
    like = next(network.parameters())
    for name in dict.fromkeys(name for lows in sliders for name in lows):
        mine = [(place, *lows[name]) for place, lows in enumerate(sliders) if name in lows]
        down = _joined([low for _, low, _ in mine], 0).to(like.device)
        up = _joined([low for _, _, low in mine], 1).to(like.device)
        columns = torch.tensor([place for place, low, _ in mine for _ in range(low.shape[0])], device=like.device)
        handles.append(modules[name].register_forward_hook(_adding(dial, down, up, columns)))
    try:
        yield dial
    finally:
        for handle in handles:
            handle.remove()


def _adding(dial: Dial, down: Any, up: Any, columns: Any) -> Any:
    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        if dial.scales is None:
            return output
        given = inputs[0]
        return output + answer(layer, given, down.to(given.dtype), up.to(given.dtype), dial.scales[:, columns].to(given.dtype))

    return hook


def _joined(parts: list[Any], dim: int) -> Any:
    """Return matrices side by side; one alone as it is, so that it can be trained."""
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
