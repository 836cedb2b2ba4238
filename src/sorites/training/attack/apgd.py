"""APGD (Croce and Hein 2020): steps up a loss inside a ball, with momentum, whose size halves when the climb stalls.

At checkpoints that come ever sooner a picture's step is halved if the loss rose in too few steps, or if its best value did not
rise since the last checkpoint and the step was not halved there; it then goes on from its best point. A picture that is wrong
is done: the verdict can no longer change, and the others go on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sorites.engines.interrupts import leave_if_asked
from sorites.training.attack.balls import Norm, inside, step
from sorites.training.attack.losses import LOSSES

if TYPE_CHECKING:
    import torch

MOMENTUM, RISES = 0.75, 0.75
FIRST, SHORTER, SHORTEST = 0.22, 0.03, 0.06
"""The steps to the first checkpoint, by how many each further stretch is shorter, and the shortest, as shares of all steps."""

Logits = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass
class _Climb:
    """Pictures on their way, one entry per picture that is not wrong yet."""

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
        """Go on with some of the pictures."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name)[chosen])


def apgd(
    logits: Logits, x: torch.Tensor, right: torch.Tensor, start: torch.Tensor, eps: float, norm: Norm, loss: str, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a point in the ball around each picture, and which of them are wrong there.

    The point is the first that is wrong, or else the one of the highest loss. ``x`` and ``start`` are N x ... in 0..1, and
    ``right`` is N x C.
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


def _look(logits: Logits, at: torch.Tensor, right: torch.Tensor, loss: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of each picture, its gradient, and whether the picture is wrong."""
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
    """Halve the steps of pictures whose climb stalls, and send those back to their best points."""
    stalls = (climb.rises <= RISES * stretch) | (~climb.halved & (climb.checked_loss >= climb.best_loss))
    climb.size[stalls] /= 2
    climb.at[stalls], climb.gradient[stalls] = climb.best[stalls], climb.best_gradient[stalls]
    climb.halved, climb.checked_loss, climb.rises = stalls, climb.best_loss.clone(), climb.rises * 0
