"""Augmentations as a share of the training step that they are made for, and OpticsAugment against
other ways to blur a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench._timing import in_turns

ROUNDS = 5
Row = tuple[str, float, str]


def _seconds(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of each work, the least of its rounds, so that neighbours on the machine count least."""
    for work in works:
        work()
    return [min(seconds) for seconds in in_turns(ROUNDS, time.process_time, *works)]


def _step(network: Any, images: Any) -> Callable[[], object]:
    """One step of SGD on a batch: forward, loss, gradients, update."""
    import torch

    network.train().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, nesterov=True)
    labels = torch.arange(len(images)) % 10
    given = images.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        optimiser.zero_grad()
        logits = network(given)
        torch.nn.functional.cross_entropy(
            logits[0] if isinstance(logits, tuple) else logits, labels
        ).backward()
        optimiser.step()

    return step


def _grouped(taps: Any, choice: Any, images: Any) -> Callable[[], object]:
    """The same blur and mixture with nothing but torch's convolution with groups."""
    import torch
    from torch.nn import functional

    number, side = len(images), taps.shape[-1]

    def blur() -> object:
        wide = functional.pad(images, (side // 2,) * 4, mode="reflect").flatten(0, 1)[None]
        blurred = functional.conv2d(wide, taps[choice].reshape(number * 3, 1, side, side), groups=number * 3)
        return torch.lerp(images, blurred.reshape(images.shape), torch.rand(number, 1, 1, 1))

    return blur


def _kornia(taps: Any, choice: Any, images: Any) -> Callable[[], object]:
    """The same with Kornia, which takes one kernel per image: colour by colour, because our
    kernels differ by colour.
    """
    import torch
    from kornia.filters import filter2d

    def blur() -> object:
        each = [filter2d(images[:, c : c + 1], taps[choice, c], border_type="reflect") for c in range(3)]
        return torch.lerp(images, torch.cat(each, 1), torch.rand(len(images), 1, 1, 1))

    return blur


def _compared(
    called: str, network: Any, size: int, batch: int, options: dict[str, Any], aim: str
) -> list[Row]:
    import torch

    from sorites.training.augment import AugMix, OpticsAugment

    images = torch.rand(batch, 3, size, size)
    optics, augmix = OpticsAugment(size, **options), AugMix(size)
    taps, choice = optics.blur.taps, optics.choices(batch)
    step, ours, mixed, grouped, kornia = _seconds(
        _step(network, images),
        lambda: optics(images),
        lambda: augmix(images),
        _grouped(taps, choice, images),
        _kornia(taps, choice, images),
    )
    work = f"{batch} images of {size} px"
    return [
        (
            f"{called}: OpticsAugment, share of a training step",
            ours / step,
            f"{aim}; {ours * 1e3:.1f} of {step * 1e3:.0f} ms, {work}",
        ),
        (f"{called}: AugMix, share of a training step", mixed / step, "aim at most 0.65"),
        (f"{called}: OpticsAugment over grouped convolution", grouped / ours, "aim about 1 or more"),
        (f"{called}: OpticsAugment over Kornia", kornia / ours, "aim about 1 or more"),
    ]


def run() -> list[Row]:
    import torch

    from sorites.core.compute.torch_tools import one_thread
    from sorites.models.lite import load
    from sorites.models.trained import small

    with one_thread():
        torch.manual_seed(0)
        return [
            *_compared("lite0, 224 px", load(0), 224, 8, {}, "aim at most 0.05"),
            *_compared("small network, 32 px", small(10), 32, 64, {"scaled": 4}, "aim at most 0.1"),
        ]
