"""Language Aligned Image feature Decomposition: one rotation that parts meaning from appearance, learnt from texts alone.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox", NeurIPS 2024, section 2.1. An
image-text embedding is turned by an orthogonal matrix W; its first half is then the meaning, its second the appearance.
W is learnt from triplets of texts and applied to pictures, which live in the same space. Margin, rate and epochs were not
published; ours were chosen on the validation pairs of the embedded case (referee ``cifar``), and tested on other pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.torch_tools import one_thread

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """The learnt W, l x l: columns before ``half`` are the meaning, the others the appearance."""

    matrix: NDArray[np.float64]

    @property
    def half(self) -> int:
        return len(self.matrix) // 2

    @property
    def error(self) -> float:
        """How far W is from orthogonal: the spectral norm of W'W - I."""
        return float(np.linalg.norm(self.matrix.T @ self.matrix - np.eye(len(self.matrix)), 2))

    def semantic(self, features: NDArray[np.floating]) -> Array:
        """The meaning of N x l features: N x l/2."""
        return self._turned(features, slice(None, self.half))

    def covariate(self, features: NDArray[np.floating]) -> Array:
        """The appearance of N x l features: N x (l - l/2)."""
        return self._turned(features, slice(self.half, None))

    def _turned(self, features: NDArray[np.floating], part: slice) -> Array:
        if features.ndim != 2 or features.shape[1] != len(self.matrix):
            raise SoritesError(f"wanted features of N x {len(self.matrix)}, which this split was learnt on, got {features.shape}")
        return np.asarray(features @ self.matrix[:, part], np.float32)


@dataclass(frozen=True)
class Training:
    """How W is learnt. ``margin`` is in cosine distance (0 to 2); ``penalty`` trades the exact rotation for the published one:
    a free matrix, and that weight on the squared Frobenius norm of W'W - I."""

    margin: float = 1.0
    epochs: int = 20
    rate: float = 0.01
    batch: int = 512
    penalty: float | None = None
    seed: int = 0


def decompose(
    texts: NDArray[np.floating],
    triplets: NDArray[np.integer],
    training: Training | None = None,
    each: Callable[[int, float], None] = lambda epoch, loss: None,
) -> Split:
    """Learn the split from text features (T x l) and triplets (N x 3) of their places: standard, other meaning, other look.

    W is the matrix exponential of a skew matrix in float64: orthogonal to about 1e-13 at every step. ``each`` is told the
    mean loss of every epoch. The rate falls to 0 along a cosine. One thread and one seed: the
    same texts give the same W.
    """
    import torch

    how = training or Training()
    _check(texts, triplets)
    with one_thread():
        held = torch.from_numpy(np.asarray(texts, np.float64))
        order = torch.Generator().manual_seed(how.seed)
        free = torch.zeros(held.shape[1], held.shape[1], dtype=torch.float64, requires_grad=True)
        turn = _rotation if how.penalty is None else _matrix
        steps = torch.optim.Adam([free], lr=how.rate)
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(steps, how.epochs)
        places = torch.from_numpy(np.asarray(triplets, np.int64))
        for epoch in range(how.epochs):
            total = 0.0
            for some in torch.split(torch.randperm(len(places), generator=order), how.batch):
                matrix = turn(free)
                loss = triplet_loss(held[places[some]] @ matrix, how.margin)
                total += float(loss.detach()) * len(some)
                steps.zero_grad()
                (loss + (how.penalty or 0.0) * _apart(matrix)).backward()  # type: ignore[no-untyped-call]
                steps.step()
            slower.step()
            each(epoch, total / len(places))
        return Split(turn(free).detach().numpy())


def triplet_loss(turned: torch.Tensor, margin: float) -> torch.Tensor:
    """Equation 2 for N x 3 x l turned texts, each part not below 0: a text's meaning is nearer to the same meaning in another
    look than to another meaning, and its look nearer to the same look, by the margin."""
    half = turned.shape[2] // 2
    meaning, look = turned[..., :half], turned[..., half:]
    kept = _distance(meaning, 2) - _distance(meaning, 1) + margin
    seen = _distance(look, 1) - _distance(look, 2) + margin
    return (kept.clamp(min=0) + seen.clamp(min=0)).mean()


def _distance(part: torch.Tensor, other: int) -> torch.Tensor:
    from torch.nn.functional import cosine_similarity

    return 1 - cosine_similarity(part[:, 0], part[:, other], dim=1)


def _rotation(free: torch.Tensor) -> torch.Tensor:
    import torch

    turned: torch.Tensor = torch.linalg.matrix_exp(free - free.T)
    return turned


def _matrix(free: torch.Tensor) -> torch.Tensor:
    import torch

    return free + torch.eye(len(free), dtype=free.dtype)


def _apart(matrix: torch.Tensor) -> torch.Tensor:
    import torch

    return (matrix.T @ matrix - torch.eye(len(matrix), dtype=matrix.dtype)).square().sum()


def _check(texts: NDArray[np.floating], triplets: NDArray[np.integer]) -> None:
    if texts.ndim != 2 or texts.shape[1] < 4 or not np.isfinite(texts).all():
        raise SoritesError(f"wanted finite text features of T x l with l of 4 or more, got shape {texts.shape}")
    if triplets.ndim != 2 or triplets.shape[1] != 3 or not len(triplets):
        raise SoritesError(f"wanted N x 3 triplets of texts, got shape {triplets.shape}")
    if triplets.min() < 0 or triplets.max() >= len(texts):
        raise SoritesError(f"a triplet names text {int(triplets.max())}, but there are only {len(texts)}")
