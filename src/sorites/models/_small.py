"""A small convolutional network for pictures of about 32 px that learns quickly on a CPU: 318 k parameters for ten classes.

Its first layer is fixed: 4 x 4 patches at stride 2, whitened with the covariance of patches of the training pictures, and both
signs of each. Then follow 1 x 1 to 32 channels, 3 x 3 to 64, a pool, a residual of two 3 x 3, 3 x 3 to 128, a pool, a residual of
one 3 x 3, the largest value of each channel, and a linear layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture
from sorites.models._preprocess import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn

PATCH = 4
PATCHES = PATCH * PATCH * 3
SHRINK = 1e-2
"""The constant added to each variance before patches are divided by its root."""
FEATURES = 128
PICTURES = 2000
"""Training pictures that the whitening is computed from."""


def wants(size: int | None = None) -> Input:
    """Return the input of the network: the whole picture at 32 px, or at another size."""
    return Input(size=(size or 32,) * 2, crop_pct=1.0)


def small(classes: int) -> nn.Module:
    """Return the network with random weights and no whitening yet; it gives logits and features."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        """A convolution, normalised over the batch, and ReLU."""

        def __init__(self, before: int, after: int, side: int = 3) -> None:
            super().__init__()
            self.conv = nn.Conv2d(before, after, side, padding=side // 2, bias=False)
            self.norm = nn.BatchNorm2d(after)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.relu(self.norm(self.conv(x)))

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whitening", torch.zeros(PATCHES, 3, PATCH, PATCH))
            self.mix = Block(2 * PATCHES, 32, 1)
            self.first = Block(32, 64)
            self.first_residual = nn.Sequential(Block(64, 64), Block(64, 64))
            self.second = Block(64, FEATURES)
            self.second_residual = Block(FEATURES, FEATURES)
            self.linear = nn.Linear(FEATURES, classes)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            white = functional.conv2d(x, self.whitening, stride=2, padding=1)  # type: ignore[arg-type]
            x = self.mix(functional.relu(torch.cat([white, -white], 1)))
            x = functional.max_pool2d(self.first(x), 2)
            x = x + self.first_residual(x)
            x = functional.max_pool2d(self.second(x), 2)
            x = x + self.second_residual(x)
            features = x.amax((2, 3))
            return self.linear(features), features

    return Small()


def whitening(pictures: Sequence[Picture], wanted: Input) -> NDArray[np.float32]:
    """Return the filters (48 x 3 x 4 x 4) that whiten the patches of some pictures at the network's input size."""
    scaled = (np.stack(pictures).astype(np.float32) / 255 - np.asarray(wanted.mean, np.float32)) / np.asarray(
        wanted.std, np.float32
    )
    windows = np.lib.stride_tricks.sliding_window_view(scaled, (PATCH, PATCH), axis=(1, 2))[:, ::2, ::2]
    patches = windows.reshape(-1, PATCHES).astype(np.float64)
    patches -= patches.mean(axis=0)
    variances, axes = np.linalg.eigh(patches.T @ patches / len(patches))
    filters: NDArray[Any] = axes.T / np.sqrt(variances + SHRINK)[:, None]
    return filters.reshape(PATCHES, 3, PATCH, PATCH).astype(np.float32)
