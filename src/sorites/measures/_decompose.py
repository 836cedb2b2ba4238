"""Language Aligned Image feature Decomposition (LAID): a rotation that separates meaning from appearance, learnt from texts.

Long et al., "Rethinking the Evaluation of Out-of-Distribution Detection: A Sorites Paradox", NeurIPS 2024, section 2.1. An
image-text embedding is rotated by an orthogonal matrix W; its first half is then the meaning (semantic), its second the
appearance (covariate). W is learnt from triplets of texts and applied to pictures, which live in the same space. Margin, rate
and epochs were not published; ours were chosen on the validation pairs of the embedded case (referee ``cifar``), and tested on
other pairs.
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
class Decomposition:
    """The learnt matrix W, l x l. Columns before ``half`` are the meaning, the others the appearance."""

    matrix: NDArray[np.float64]

    @property
    def half(self) -> int:
        return len(self.matrix) // 2

    @property
    def error(self) -> float:
        """The distance of W from orthogonal: the spectral norm of W'W - I."""
        return float(np.linalg.norm(self.matrix.T @ self.matrix - np.eye(len(self.matrix)), 2))

    def semantic(self, features: NDArray[np.floating]) -> Array:
        """Return the meaning of N x l features: N x l/2."""
        return self._rotated(features, slice(None, self.half))

    def covariate(self, features: NDArray[np.floating]) -> Array:
        """Return the appearance of N x l features: N x (l - l/2)."""
        return self._rotated(features, slice(self.half, None))

    def _rotated(self, features: NDArray[np.floating], part: slice) -> Array:
        if features.ndim != 2 or features.shape[1] != len(self.matrix):
            wide = len(self.matrix)
            raise SoritesError(f"wanted features of N x {wide}, which this decomposition was learnt on, got {features.shape}")
        return np.asarray(features @ self.matrix[:, part], np.float32)


@dataclass(frozen=True)
class Training:
    """The settings by which W is learnt. ``margin`` is in cosine distance (0 to 2). ``penalty`` replaces the exact rotation by
    the published method: a free matrix, and that weight on the squared Frobenius norm of W'W - I."""

    margin: float = 1.0
    epochs: int = 20
    rate: float = 0.01
    batch: int = 512
    penalty: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 2:
            raise SoritesError(f"--margin wants a number from 0 to 2, a cosine distance; got {self.margin}")


def decompose(
    texts: NDArray[np.floating],
    triplets: NDArray[np.integer],
    training: Training | None = None,
    each: Callable[[int, float], None] = lambda epoch, loss: None,
) -> Decomposition:
    """Learn W from text features (T x l) and triplets (N x 3) of their places: standard, other meaning, other style.

    W is the matrix exponential of a skew matrix in float64: orthogonal to about 1e-13 at every step. ``each`` is called with the
    number and the mean loss of every epoch. The rate falls to 0 along a cosine. One thread and one seed are used, so that the
    same texts give the same W.
    """
    import torch

    how = training or Training()
    _check(texts, triplets)
    with one_thread():
        features = torch.from_numpy(np.asarray(texts))
        order = torch.Generator().manual_seed(how.seed)
        free = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64, requires_grad=True)
        matrix_of = _rotation if how.penalty is None else _matrix
        steps = torch.optim.Adam([free], lr=how.rate)
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(steps, how.epochs)
        places = torch.from_numpy(np.asarray(triplets, np.int64))
        for epoch in range(how.epochs):
            total = 0.0
            for some in torch.split(torch.randperm(len(places), generator=order), how.batch):
                matrix = matrix_of(free)
                loss = triplet_loss(features[places[some]].double() @ matrix, how.margin)
                total += float(loss.detach()) * len(some)
                steps.zero_grad()
                (loss + (how.penalty or 0.0) * _orthogonality_error(matrix)).backward()  # type: ignore[no-untyped-call]
                steps.step()
            slower.step()
            each(epoch, total / len(places))
        return Decomposition(matrix_of(free).detach().numpy())


def triplet_loss(rotated: torch.Tensor, margin: float) -> torch.Tensor:
    """Return equation 2 for N x 3 x l rotated texts, each term not below 0.

    It asks that a text's meaning is nearer to the same meaning in another style than to another meaning, and that its appearance
    is nearer to the same style, both by the margin.
    """
    half = rotated.shape[2] // 2
    meaning, appearance = rotated[..., :half], rotated[..., half:]
    semantic = _distance(meaning, 2) - _distance(meaning, 1) + margin
    covariate = _distance(appearance, 1) - _distance(appearance, 2) + margin
    return (semantic.clamp(min=0) + covariate.clamp(min=0)).mean()


def _distance(part: torch.Tensor, other: int) -> torch.Tensor:
    from torch.nn.functional import cosine_similarity

    return 1 - cosine_similarity(part[:, 0], part[:, other], dim=1)


def _rotation(free: torch.Tensor) -> torch.Tensor:
    import torch

    rotation: torch.Tensor = torch.linalg.matrix_exp(free - free.T)
    return rotation


def _matrix(free: torch.Tensor) -> torch.Tensor:
    import torch

    return free + torch.eye(len(free), dtype=free.dtype)


def _orthogonality_error(matrix: torch.Tensor) -> torch.Tensor:
    import torch

    return (matrix.T @ matrix - torch.eye(len(matrix), dtype=matrix.dtype)).square().sum()


def _check(texts: NDArray[np.floating], triplets: NDArray[np.integer]) -> None:
    if texts.ndim != 2 or texts.shape[1] < 4 or not np.isfinite(texts).all():
        raise SoritesError(f"wanted finite text features of T x l with l of 4 or more, got shape {texts.shape}")
    if triplets.ndim != 2 or triplets.shape[1] != 3 or not len(triplets):
        raise SoritesError(f"wanted N x 3 triplets of texts, got shape {triplets.shape}")
    if triplets.min() < 0 or triplets.max() >= len(texts):
        raise SoritesError(f"a triplet names text {int(triplets.max())}, but there are only {len(texts)}")
