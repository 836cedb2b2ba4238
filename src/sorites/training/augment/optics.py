"""OpticsAugment: pictures mixed with themselves seen through a lens that is out of shape.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object Detection", VI-B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sorites.errors import SoritesError
from sorites.shifts._kernels import LEVELS, WAVES, choose
from sorites.training.augment._blur import KernelBlur
from sorites.training.augment.base import Mixing


class OpticsAugment(Mixing):
    """Blurs each picture by one of the eight OpticsBench aberrations, drawn uniformly, and mixes the two.

    x' = (1 - w) x + w blur(x), with w from Beta(alpha, alpha) for each picture: published are severity 3 and alpha 1, for which w
    is uniform. Give pictures before they are normalised; normalising is affine and the weights sum to one, so normalising
    afterwards gives exactly the published mixture of normalised pictures. Borders are mirrored.

    ``severity`` is a number from 0 to 5, or several to draw from uniformly. The blur is that of our shifts with
    ``padding="reflect"``, and the other options are theirs: ``kernels`` is a file with a published stack, ``colours`` is rgb or
    rg, and ``scaled`` shrinks the kernels so many times for small pictures (4 for 32 px).
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        severity: float | Sequence[float] = 3.0,
        alpha: float = 1.0,
        kernels: str | None = None,
        colours: str = "rgb",
        scaled: float = 1.0,
    ) -> None:
        super().__init__(size, alpha)
        self.severities = _severities(severity)
        chosen = choose("OpticsAugment", kernels=kernels, colours=colours, scaled=scaled)
        self.places = [(mode, severity) for mode in WAVES for severity in self.severities]
        taps = np.array([chosen.taps(mode, severity) for mode, severity in self.places], np.float32)
        self.blur = KernelBlur(torch.from_numpy(taps))

    def choices(self, number: int) -> Tensor:
        """Draw the kernels of so many pictures, as places in ``places``: uniform over modes and severities."""
        return self.whole(number, below=len(self.places))

    def mix(self, pictures: Tensor, weights: Tensor) -> Tensor:
        return self.blur.mixed(pictures, self.choices(len(pictures)), weights)

    def extra_repr(self) -> str:
        return f"severity={self.severities}, alpha={self.alpha:g}, taps={self.blur.side}"


def _severities(given: Any) -> tuple[float, ...]:
    some = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for severity in some:
        fits = isinstance(severity, int | float) and not isinstance(severity, bool) and math.isfinite(severity)
        if not fits or not 0 <= severity <= LEVELS[-1]:
            raise SoritesError(f"OpticsAugment: wanted a severity from 0 to {LEVELS[-1]}, or several, got {severity!r}")
    if not some:
        raise SoritesError(f"OpticsAugment: wanted a severity from 0 to {LEVELS[-1]}, or several, got none")
    return tuple(map(float, some))
