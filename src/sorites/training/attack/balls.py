"""The ball around a picture that an attack stays in, by its norm: where it starts, how it steps, and how it is held inside.

Pictures are N x ... in 0..1, and sizes one number per picture. All formulas are those of Croce and Hein's own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Norm = Literal["l2", "linf"]
TINY = 1e-12


def start(x: NDArray[np.float32], eps: float, norm: Norm, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a random point on the sphere around one picture, or as far as the range 0..1 lets it.

    The direction is the same for every ``eps``, since the draw does not know it.
    """
    drawn = rng.standard_normal(x.shape) if norm == "l2" else rng.uniform(-1, 1, x.shape)
    size = np.sqrt((drawn**2).sum()) if norm == "l2" else np.abs(drawn).max()
    return np.asarray(np.clip(x + eps * drawn / (size + TINY), 0, 1), np.float32)


def step(at: torch.Tensor, gradient: torch.Tensor, size: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Return the point one step up the gradient."""
    direction = gradient.sign() if norm == "linf" else gradient / (_length(gradient) + TINY)
    return at + _like(size, at) * direction


def inside(at: torch.Tensor, x: torch.Tensor, eps: float, norm: Norm) -> torch.Tensor:
    """Return the nearest point in the ball around ``x``, then in the range 0..1."""
    if norm == "linf":
        return at.clamp(x - eps, x + eps).clamp(0, 1)
    length = _length(at - x)
    return (x + (at - x) / (length + TINY) * length.clamp(max=eps)).clamp(0, 1)


def _length(moved: torch.Tensor) -> torch.Tensor:
    return _like(moved.flatten(1).square().sum(1).sqrt(), moved)


def _like(sizes: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    """Return one number per picture in a shape that multiplies the pictures."""
    return sizes.reshape(-1, *(1,) * (pictures.ndim - 1))
