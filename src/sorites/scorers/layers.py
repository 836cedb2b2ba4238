"""Access to the inside of a torch model: its forward pass, its gradient, and the feature maps at
the end of each stage.

Images go through one at a time and on one thread, so that an image's score does not depend on
the others in its batch. Torch is not imported with this module, and the model is not changed: hooks
registered for a pass are removed after it and act only on the thread that registered them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, Model
from sorites.core.errors import SoritesError
from sorites.core.torch_tools import one_thread

# The name of a submodule, and the number of its call within a forward pass, from 0.
Spot = tuple[str, int]

_stages_by_module: WeakKeyDictionary[Any, list[Spot]] = WeakKeyDictionary()


def rows(
    model: Model, images: Sequence[ImageU8], framed: bool, who: str, one: Callable[[Any, Any], NDArray[Any]]
) -> NDArray[np.float32]:
    """Return ``one(module, batch of one image)`` for each image, as float32 rows."""
    import torch

    if model.module is None:
        raise SoritesError(
            f"scorer {who} looks inside a torch model, and {model.name} does not show its inside"
        )
    device = next((p.device for p in model.module.parameters()), torch.device("cpu"))
    with one_thread(), torch.inference_mode(False):
        values = [
            one(
                model.module,
                torch.from_numpy(np.array(model.prepare(image, framed))[None]).to(device).float(),
            )
            for image in images
        ]
    return np.stack(values).astype(np.float32)


def logits(module: Any, batch: Any) -> Any:
    """Return the logits of a batch as a tensor."""
    given = module(batch)
    return given[0] if isinstance(given, tuple | list) else given


@contextmanager
def tapped(module: Any, spots: Sequence[Spot], tap: Callable[[Spot, Any], Any]) -> Iterator[None]:
    """Call ``tap(spot, output)`` at each spot during one pass of this thread; a result other than
    None replaces the output.
    """
    here, calls, places = threading.get_ident(), dict[str, int](), dict(module.named_modules())

    def hook(name: str) -> Callable[[Any, Any, Any], Any]:
        def called(_: Any, __: Any, output: Any) -> Any:
            if threading.get_ident() != here:
                return None
            calls[name] = calls.get(name, -1) + 1
            return tap((name, calls[name]), output) if (name, calls[name]) in wanted else None

        return called

    wanted = set(spots)
    handles = [places[name].register_forward_hook(hook(name)) for name in {name for name, _ in spots}]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def stages(module: Any, batch: Any, who: str) -> list[Spot]:
    """Return where each resolution of a convolutional network ends: the last 4-D output of each
    height and width above 1 x 1.

    Padding layers are left out, since their output does not end a stage. The search is made once per module.
    """
    if module not in _stages_by_module:
        _stages_by_module[module] = _ends(module, batch)
    if not _stages_by_module[module]:
        raise SoritesError(f"scorer {who} needs feature maps (N x C x H x W), and this model makes none")
    return _stages_by_module[module]


def _ends(module: Any, batch: Any) -> list[Spot]:
    """Run one pass and return the last call that gave each resolution."""
    import torch

    ends: dict[tuple[int, int], Spot] = {}
    here, calls = threading.get_ident(), dict[str, int]()

    def hook(name: str, counts: bool) -> Callable[[Any, Any, Any], None]:
        def called(_: Any, __: Any, output: Any) -> None:
            if threading.get_ident() != here:
                return
            calls[name] = calls.get(name, -1) + 1
            if (
                counts
                and isinstance(output, torch.Tensor)
                and output.ndim == 4
                and output.shape[2] * output.shape[3] > 1
            ):
                size = (int(output.shape[2]), int(output.shape[3]))
                ends.pop(size, None)
                ends[size] = (name, calls[name])

        return called

    handles = [
        part.register_forward_hook(hook(name, not _pads(part))) for name, part in module.named_modules()
    ]
    try:
        with torch.no_grad():
            module(batch)
    finally:
        for handle in handles:
            handle.remove()
    return list(ends.values())


def _pads(part: Any) -> bool:
    return type(part).__module__ == "torch.nn.modules.padding"


def named(module: Any, layers: Sequence[str], who: str) -> list[Spot]:
    """Find the first calls of submodules by name or by the end of it: ``layer4`` finds
    ``module.network.layer4``.
    """
    names = [name for name, _ in module.named_modules()]
    found = [next((name for name in names if f".{name}".endswith(f".{layer}")), None) for layer in layers]
    missing = [layer for layer, name in zip(layers, found, strict=True) if name is None]
    if missing:
        raise SoritesError(
            f"scorer {who}: this model has no layer {missing[0]!r}; it has {', '.join(names[1:9])}, ..."
        )
    return [(name, 0) for name in found if name is not None]
