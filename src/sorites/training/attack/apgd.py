"""APGD (Croce and Hein 2020): projected gradient ascent with momentum and adaptive step size.

At checkpoints, which come ever sooner, the step size of an image is halved if the loss rose in too few steps,
or if its best loss did not rise since the last checkpoint and the step size was not halved there. The search
then continues from the best point. Misclassified images are finished and leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sorites.evaluation.engines.interrupts import stop_if_requested

if TYPE_CHECKING:
    import torch

# The ball around an image that an attack stays in: starting points, steps and projection, by norm.


Norm = Literal["l2", "linf"]
EPSILON = 1e-12


def start(x: NDArray[np.float32], eps: float, norm: Norm, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a random point on the sphere around one image, clipped to 0..1.

    The direction is the same for every ``eps``.
    """
    drawn = rng.standard_normal(x.shape) if norm == "l2" else rng.uniform(-1, 1, x.shape)
    size = np.sqrt((drawn**2).sum()) if norm == "l2" else np.abs(drawn).max()
    return np.asarray(np.clip(x + eps * drawn / (size + EPSILON), 0, 1), np.float32)


def step(at: torch.Tensor, gradient: torch.Tensor, size: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Return the point one gradient step further."""
    direction = gradient.sign() if norm == "linf" else gradient / (_length(gradient) + EPSILON)
    return at + _per_image(size, at) * direction


def inside(at: torch.Tensor, x: torch.Tensor, eps: float, norm: Norm) -> torch.Tensor:
    """Project a point into the ball around ``x``, then clip it to 0..1."""
    if norm == "linf":
        return at.clamp(x - eps, x + eps).clamp(0, 1)
    length = _length(at - x)
    return (x + (at - x) / (length + EPSILON) * length.clamp(max=eps)).clamp(0, 1)


def _length(moved: torch.Tensor) -> torch.Tensor:
    return _per_image(moved.flatten(1).square().sum(1).sqrt(), moved)


def _per_image(sizes: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Reshape one number per image so that it broadcasts over the images."""
    return sizes.reshape(-1, *(1,) * (images.ndim - 1))


# The losses that an attack maximizes, for images with one or several correct classes.


Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]

# Minimum number of classes for each loss.
LEAST_CLASSES = {"ce": 2, "dlr": 3}


def cross_entropy(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return minus the log probability of all correct classes together."""
    return logits.logsumexp(1) - logits.masked_fill(~right, -float("inf")).logsumexp(1)


def logit_ratio(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the difference of logits ratio, which is scale invariant.

    (best wrong - best correct) / (first - third)
    """
    ordered = logits.sort(dim=1, descending=True).values
    best_right = logits.masked_fill(~right, -float("inf")).amax(1)
    best_wrong = logits.masked_fill(right, -float("inf")).amax(1)
    return (best_wrong - best_right) / (ordered[:, 0] - ordered[:, 2] + 1e-12)


# The losses by name.
LOSSES: dict[str, Loss] = {"ce": cross_entropy, "dlr": logit_ratio}


MOMENTUM, MIN_RISE_SHARE = 0.75, 0.75
# Checkpoint periods as shares of all steps: the first, the decrement of each further one, and the minimum.
FIRST_PERIOD, PERIOD_DECREMENT, MIN_PERIOD = 0.22, 0.03, 0.06

Logits = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass
class _Climb:
    """Search state, with one entry per image that is still classified correctly."""

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
    """True if the step size was halved at the last checkpoint; True at the start."""
    rises: torch.Tensor
    """The number of steps since the last checkpoint in which the loss rose."""

    def keep(self, chosen: torch.Tensor) -> None:
        """Restrict the state to the chosen images."""
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
    """Attack images and return the resulting points, and which of them are misclassified.

    Args:
        logits: Function from images to logits.
        x: The images, N x ..., in 0..1.
        right: Mask of the correct classes, N x C.
        start: Starting points, shaped like ``x``.
        eps: Radius of the ball.
        norm: Norm of the ball.
        loss: Name of a loss in ``LOSSES``.
        steps: Number of steps.

    Returns:
        For each image the first misclassified point, or else the point of highest loss; and a mask.
    """
    import torch

    value, gradient, wrong = _evaluate(logits, start, right, loss)
    point, fooled = start.clone(), wrong.clone()
    n = len(x)
    climb = _Climb(
        torch.arange(n, device=x.device),
        x,
        right,
        start,
        start,
        gradient,
        value,
        torch.full((n,), 2 * eps, device=x.device),
        start.clone(),
        gradient.clone(),
        value.clone(),
        value.clone(),
        torch.ones_like(wrong),
        torch.zeros_like(value),
    )
    climb.keep(~wrong)
    left = period = max(int(FIRST_PERIOD * steps), 1)
    for i in range(steps):
        if not len(climb.place):
            break
        stop_if_requested()
        _move(climb, eps, norm, 1.0 if i == 0 else MOMENTUM)
        value, climb.gradient, wrong = _evaluate(logits, climb.at, climb.right, loss)
        point[climb.place[wrong]], fooled[climb.place[wrong]] = climb.at[wrong], True
        _update_best(climb, value)
        climb.keep(~wrong)
        left -= 1
        if left == 0:
            _adapt_step_size(climb, period)
            left = period = max(
                period - max(int(PERIOD_DECREMENT * steps), 1), max(int(MIN_PERIOD * steps), 1)
            )
    point[climb.place] = climb.best
    return point, fooled


def _evaluate(
    logits: Logits, at: torch.Tensor, right: torch.Tensor, loss: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of each image, its gradient, and whether the image is misclassified."""
    import torch

    with torch.enable_grad():
        at = at.detach().requires_grad_()
        output = logits(at)
        value = LOSSES[loss](output, right)
        (gradient,) = torch.autograd.grad(value.sum(), at)
    wrong = ~right.gather(1, output.detach().argmax(1, keepdim=True)).squeeze(1)
    return value.detach(), gradient, wrong


def _move(climb: _Climb, eps: float, norm: Norm, share: float) -> None:
    """Take a gradient step, mixed with the previous step by momentum."""
    ahead = inside(step(climb.at, climb.gradient, climb.size, norm), climb.x, eps, norm)
    mixed = climb.at + share * (ahead - climb.at) + (1 - share) * (climb.at - climb.before)
    climb.before, climb.at = climb.at, inside(mixed, climb.x, eps, norm)


def _update_best(climb: _Climb, value: torch.Tensor) -> None:
    """Count rises of the loss, and remember the best point."""
    climb.rises = climb.rises + (value > climb.loss)
    climb.loss = value
    better = value > climb.best_loss
    climb.best[better], climb.best_gradient[better] = climb.at[better], climb.gradient[better]
    climb.best_loss[better] = value[better]


def _adapt_step_size(climb: _Climb, period: int) -> None:
    """Halve the step size of stalled images, and move them back to their best points."""
    stalls = (climb.rises <= MIN_RISE_SHARE * period) | (
        ~climb.halved & (climb.checked_loss >= climb.best_loss)
    )
    climb.size[stalls] /= 2
    climb.at[stalls], climb.gradient[stalls] = climb.best[stalls], climb.best_gradient[stalls]
    climb.halved, climb.checked_loss, climb.rises = stalls, climb.best_loss.clone(), climb.rises * 0
