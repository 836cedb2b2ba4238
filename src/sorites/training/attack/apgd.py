"""APGD (Croce and Hein 2020): steps up a loss inside a ball, with momentum, whose size halves when
the climb stalls.

At checkpoints that come ever sooner an image's step is halved if the loss rose in too few steps,
or if its best value did not rise since the last checkpoint and the step was not halved there; it
then goes on from its best point. An image that is wrong is done: the verdict can no longer change,
and the others go on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sorites.evaluation.engines.interrupts import leave_if_asked

if TYPE_CHECKING:
    import torch

# The ball around an image that an attack stays in, by its norm: where it starts, how it steps, and how
# it is held inside.


Norm = Literal["l2", "linf"]
TINY = 1e-12


def start(x: NDArray[np.float32], eps: float, norm: Norm, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a random point on the sphere around one image, or as far as the range 0..1 lets it.

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


def _like(sizes: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return one number per image in a shape that multiplies the images."""
    return sizes.reshape(-1, *(1,) * (images.ndim - 1))


# The losses that an attack climbs (Croce and Hein 2020), for images with one right class or several.


Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]

# The number of classes that each loss needs.
LEAST_CLASSES = {"ce": 2, "dlr": 3}


def cross_entropy(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return minus the log probability of the right classes together."""
    return logits.logsumexp(1) - logits.masked_fill(~right, -float("inf")).logsumexp(1)


def logit_ratio(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the difference of logits ratio: (best wrong - best right) / (first - third), whose
    scale does not matter.
    """
    ordered = logits.sort(dim=1, descending=True).values
    best_right = logits.masked_fill(~right, -float("inf")).amax(1)
    best_wrong = logits.masked_fill(right, -float("inf")).amax(1)
    return (best_wrong - best_right) / (ordered[:, 0] - ordered[:, 2] + 1e-12)


# The losses by the name that ``--attack`` gives them.
LOSSES: dict[str, Loss] = {"ce": cross_entropy, "dlr": logit_ratio}


MOMENTUM, RISES = 0.75, 0.75
# The steps to the first checkpoint, by how many each further stretch is shorter, and the shortest,
# as shares of all steps.
FIRST, SHORTER, SHORTEST = 0.22, 0.03, 0.06

Logits = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass
class _Climb:
    """Images on their way, one entry per image that is not wrong yet."""

    place: torch.Tensor
    x: torch.Tensor
    right: torch.Tensor
    at: torch.Tensor
    before: torch.Tensor
    gradient: torch.Tensor
    loss: torch.Tensor
    size: torch.Tensor
    best: torch.Tensor
    best_gradient: torch.Tensor
    best_loss: torch.Tensor
    checked_loss: torch.Tensor
    """The best loss at the last checkpoint."""
    halved: torch.Tensor
    """True where the step was halved at the last checkpoint; at the start it counts as halved."""
    rises: torch.Tensor
    """The number of steps since the last checkpoint in which the loss rose."""

    def keep(self, chosen: torch.Tensor) -> None:
        """Go on with some of the images."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name)[chosen])


def apgd(
    logits: Logits,
    x: torch.Tensor,
    right: torch.Tensor,
    start: torch.Tensor,
    eps: float,
    norm: Norm,
    loss: str,
    steps: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a point in the ball around each image, and which of them are wrong there.

    The point is the first that is wrong, or else the one of the highest loss. ``x`` and ``start``
    are N x ... in 0..1, and ``right`` is N x C.
    """
    import torch

    value, gradient, wrong = _look(logits, start, right, loss)
    point, fooled = start.clone(), wrong.clone()
    n = len(x)
    climb = _Climb(
        torch.arange(n, device=x.device), x, right, start, start, gradient, value, torch.full((n,), 2 * eps, device=x.device),
        start.clone(), gradient.clone(), value.clone(), value.clone(), torch.ones_like(wrong), torch.zeros_like(value),
    )  # fmt: skip
    climb.keep(~wrong)
    left = stretch = max(int(FIRST * steps), 1)
    for i in range(steps):
        if not len(climb.place):
            break
        leave_if_asked()
        _move(climb, eps, norm, 1.0 if i == 0 else MOMENTUM)
        value, climb.gradient, wrong = _look(logits, climb.at, climb.right, loss)
        point[climb.place[wrong]], fooled[climb.place[wrong]] = climb.at[wrong], True
        _compare(climb, value)
        climb.keep(~wrong)
        left -= 1
        if left == 0:
            _check(climb, stretch)
            left = stretch = max(stretch - max(int(SHORTER * steps), 1), max(int(SHORTEST * steps), 1))
    point[climb.place] = climb.best
    return point, fooled


def _look(
    logits: Logits, at: torch.Tensor, right: torch.Tensor, loss: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of each image, its gradient, and whether the image is wrong."""
    import torch

    with torch.enable_grad():
        at = at.detach().requires_grad_()
        given = logits(at)
        value = LOSSES[loss](given, right)
        (gradient,) = torch.autograd.grad(value.sum(), at)
    wrong = ~right.gather(1, given.detach().argmax(1, keepdim=True)).squeeze(1)
    return value.detach(), gradient, wrong


def _move(climb: _Climb, eps: float, norm: Norm, share: float) -> None:
    """Take a step up the gradient, mixed with the last one."""
    ahead = inside(step(climb.at, climb.gradient, climb.size, norm), climb.x, eps, norm)
    mixed = climb.at + share * (ahead - climb.at) + (1 - share) * (climb.at - climb.before)
    climb.before, climb.at = climb.at, inside(mixed, climb.x, eps, norm)


def _compare(climb: _Climb, value: torch.Tensor) -> None:
    """Note whether the loss rose, and keep the best point."""
    climb.rises = climb.rises + (value > climb.loss)
    climb.loss = value
    better = value > climb.best_loss
    climb.best[better], climb.best_gradient[better] = climb.at[better], climb.gradient[better]
    climb.best_loss[better] = value[better]


def _check(climb: _Climb, stretch: int) -> None:
    """Halve the steps of images whose climb stalls, and send those back to their best points."""
    stalls = (climb.rises <= RISES * stretch) | (~climb.halved & (climb.checked_loss >= climb.best_loss))
    climb.size[stalls] /= 2
    climb.at[stalls], climb.gradient[stalls] = climb.best[stalls], climb.best_gradient[stalls]
    climb.halved, climb.checked_loss, climb.rises = stalls, climb.best_loss.clone(), climb.rises * 0
