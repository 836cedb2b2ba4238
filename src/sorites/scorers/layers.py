"""Access to the inside of a torch model: forward pass, gradient, and feature maps at the end of each stage.

Images are processed one at a time on a CPU, and elsewhere in passes of the model's constant batch size, so
that the score of an image does not depend on the images beside it. Importing this module does not import
torch. The model is not changed: hooks are removed after the pass and act only on the thread that registered
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, Model
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import on_this_thread
from sorites.core.errors import SoritesError

# The name of a submodule and the index of its call within a forward pass.
Spot = tuple[str, int]

_stages_by_module: WeakKeyDictionary[Any, list[Spot]] = WeakKeyDictionary()


def rows(
    model: Model,
    images: Sequence[ImageU8],
    framed: bool,
    scorer: str,
    read: Callable[[Any, Any], NDArray[Any]],
) -> NDArray[np.float32]:
    """Return the rows of ``read(module, batch)`` for all images in float32.

    A batch is filled up with copies of its last image, whose rows are dropped.

    Raises:
        SoritesError: If the model gives no access to a torch module.
    """
    import torch

    if model.module is None:
        raise SoritesError(
            f"scorer {scorer} needs the torch module of a model, and {model.name} does not give access to it"
        )
    device = next((p.device for p in model.module.parameters()), torch.device("cpu"))
    size = 1 if device.type == "cpu" else model.batch or 1
    prepared = [np.array(model.prepare(image, framed)) for image in images]
    values = []
    with reproducible(device), torch.inference_mode(False):
        for start in range(0, len(images), size):
            part = prepared[start : start + size]
            batch = torch.from_numpy(np.stack([*part, *part[-1:] * (size - len(part))]))
            values.append(read(model.module, batch.to(device).float())[: len(part)])
    return np.concatenate(values).astype(np.float32)


def logits(module: Any, batch: Any) -> Any:
    """Return the logits of a batch as a tensor."""
    outputs = module(batch)
    return outputs[0] if isinstance(outputs, tuple | list) else outputs


def wide(tensor: Any) -> Any:
    """Return a tensor in float64, on the CPU if its device has no such numbers."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


@contextmanager
def tapped(module: Any, spots: Sequence[Spot], tap: Callable[[Spot, Any], Any]) -> Iterator[None]:
    """Call ``tap(spot, output)`` at each spot during a pass on this thread; a result other than None replaces
    the output.
    """
    calls, modules = dict[str, int](), dict(module.named_modules())

    def hook(name: str) -> Callable[..., Any]:
        def called(_: Any, __: Any, output: Any) -> Any:
            calls[name] = calls.get(name, -1) + 1
            return tap((name, calls[name]), output) if (name, calls[name]) in tapped_spots else None

        return on_this_thread(called)

    tapped_spots = set(spots)
    handles = [modules[name].register_forward_hook(hook(name)) for name in {name for name, _ in spots}]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def stages(module: Any, batch: Any, scorer: str) -> list[Spot]:
    """Return where each resolution of a convolutional network ends: the last 4-D output of each size.

    Outputs of 1 x 1 and padding layers do not end a stage. The result is cached per module.
    """
    if module not in _stages_by_module:
        _stages_by_module[module] = _ends(module, batch)
    if not _stages_by_module[module]:
        raise SoritesError(f"scorer {scorer} needs feature maps (N x C x H x W), and this model has none")
    return _stages_by_module[module]


def _ends(module: Any, batch: Any) -> list[Spot]:
    """Run one forward pass and return the last call that produced each resolution."""
    import torch

    ends: dict[tuple[int, int], Spot] = {}
    calls = dict[str, int]()

    def hook(name: str, ends_stage: bool) -> Callable[..., Any]:
        def called(_: Any, __: Any, output: Any) -> None:
            calls[name] = calls.get(name, -1) + 1
            if (
                ends_stage
                and isinstance(output, torch.Tensor)
                and output.ndim == 4
                and output.shape[2] * output.shape[3] > 1
            ):
                size = (int(output.shape[2]), int(output.shape[3]))
                ends.pop(size, None)
                ends[size] = (name, calls[name])

        return on_this_thread(called)

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


def named(module: Any, layers: Sequence[str], scorer: str) -> list[Spot]:
    """Return the first call of each named submodule; ``layer4`` also matches ``module.network.layer4``."""
    names = [name for name, _ in module.named_modules()]
    matches = [next((name for name in names if f".{name}".endswith(f".{layer}")), None) for layer in layers]
    missing = [layer for layer, name in zip(layers, matches, strict=True) if name is None]
    if missing:
        raise SoritesError(
            f"scorer {scorer}: this model has no layer {missing[0]!r}; it has {', '.join(names[1:9])}, ..."
        )
    return [(name, 0) for name in matches if name is not None]
