"""Classify an image by how well a diffusion model knows the noise on it under each class (Li et
al., ICCV 2023).

Noise of several draws is laid on the image, the same for all classes; the class whose words let
the network predict it best wins. Classes that are surely behind drop out in stages, and draws stop
when only one class is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.samples import ImageU8
from sorites.core.torch_tools import one_thread
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import NOISE_STEPS, latents_of, noised, predicted

LOSSES = ("l1", "l2")
# Noisy images that go through the network at once.
BATCH = 48
# Gives the errors of the draws from one number to another under some of the conditions, draws x
# conditions.
Asked = Callable[[int, int, NDArray[np.int64]], NDArray[np.float64]]
# The least gap between the logit of a class that dropped out and those that stayed.
LEAST = 1e-5


@dataclass(frozen=True)
class Judging:
    """The rules for judging an image: at most ``draws`` of noise, and the draws after which
    classes drop out.
    """

    draws: int = 32
    loss: str = "l1"
    """The mean size of the error, or its mean square; CNS-Bench took the former."""
    first: int = 4
    """Draws before classes drop out for the first time; after that whenever the number of draws has
    doubled.
    """
    sure: float = 2.0
    """A class drops out when it is behind the leader by this many standard errors of their paired
    difference; 0: none does.
    """
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be judged by."""
        checks = (
            ("draws", 1 <= self.draws <= 10_000, "a whole number from 1 to 10000"),
            ("loss", self.loss in LOSSES, " or ".join(LOSSES)),
            ("first", 2 <= self.first <= 10_000, "a whole number from 2"),
            ("sure", 0 <= self.sure <= 100, "a number of standard errors from 0, which is never, to 100"),
        )
        for name, right, wanted in checks:
            if not right:
                raise SoritesError(f"{name}: wanted {wanted}, got {getattr(self, name)!r}")

    @property
    def stages(self) -> tuple[int, ...]:
        """Return the numbers of draws after which classes may drop out; the last is the end."""
        ends, at = [], self.first
        while self.sure and at < self.draws:
            ends.append(at)
            at *= 2
        return (*ends, self.draws)

    def facts(self) -> dict[str, Any]:
        """Return every parameter by its name."""
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """The result for one image: minus the error per class, the draws that each rests on, and
    passes of the network.
    """

    logits: NDArray[np.float32]
    draws: NDArray[np.int64]
    passes: int


def judged(
    pipe: Pipe, image: ImageU8, conditions: Sequence[Any], owners: Sequence[int], how: Judging
) -> Verdict:
    """Judge one 8-bit image of the pipeline's width. ``owners`` says which class each condition describes.

    A class is as good as the best of its conditions. All draws follow from the image and the seed alone.
    """
    import torch

    with pipe.busy, one_thread(), torch.no_grad():
        return staged(_asked(pipe, image, conditions, how), owners, how)


def _asked(pipe: Pipe, image: ImageU8, conditions: Sequence[Any], how: Judging) -> Asked:
    """Return what finds errors of the network for an image when it is asked for them."""
    latent = latents_of(pipe, [image])
    noise, times = _draws(latent, image, how)

    def found(start: int, end: int, alive: NDArray[np.int64]) -> NDArray[np.float64]:
        some = [conditions[int(place)] for place in alive]
        return _errors(pipe, latent, noise[start:end], times[start:end], some, how)

    return found


def staged(found: Asked, owners: Sequence[int], how: Judging) -> Verdict:
    """Judge by errors that are asked for in stages."""
    owner, errors = np.asarray(owners), np.full((how.draws, len(owners)), np.nan)
    alive, done, passes = np.arange(len(owners)), 0, 0
    for end in how.stages:
        errors[done:end, alive] = found(done, end, alive)
        passes += (end - done) * len(alive)
        done = end
        if how.sure and done < how.draws:
            alive = _kept(errors[:done], alive, how.sure)
        if len(set(owner[alive])) == 1:
            break
    return _verdict(errors[:done], alive, owner, passes)


def _draws(latent: Any, image: ImageU8, how: Judging) -> tuple[Any, Any]:
    """Return noise and noise steps: every prefix of the steps is spread over the whole range (van
    der Corput 1935).
    """
    import torch

    key = digest(np.ascontiguousarray(image).tobytes().hex(), image.shape, how.seed, size=8)
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
    offset = float(torch.rand(1, generator=generator))
    spread = np.array([(_reversed(i) + offset) % 1 for i in range(how.draws)])
    times = torch.from_numpy((spread * NOISE_STEPS).astype(np.int64).clip(0, NOISE_STEPS - 1)).to(
        latent.device
    )
    return torch.randn((how.draws, *latent.shape[1:]), generator=generator).to(latent), times


def _reversed(number: int) -> float:
    """Return the digits of a number in base 2, mirrored at the point."""
    return int(f"{number:032b}"[::-1], 2) / 2**32


def _errors(
    pipe: Pipe, latent: Any, noise: Any, times: Any, conditions: Sequence[Any], how: Judging
) -> NDArray[np.float64]:
    """Return the errors of the network, draws x conditions."""
    import torch

    noisy, aim = noised(pipe, latent.expand_as(noise), noise, times)
    pairs = [(draw, place) for draw in range(len(noise)) for place in range(len(conditions))]
    found = []
    for some in (pairs[i : i + BATCH] for i in range(0, len(pairs), BATCH)):
        rows = [draw for draw, _ in some]
        apart = (
            predicted(pipe, noisy[rows], times[rows], [conditions[place] for _, place in some]) - aim[rows]
        )
        size = apart.float().abs() if how.loss == "l1" else apart.float() ** 2
        found.append(size.mean(dim=tuple(range(1, size.ndim))))
    return np.asarray(torch.cat(found).cpu().double().numpy()).reshape(len(noise), len(conditions))


def _kept(errors: NDArray[np.float64], alive: NDArray[np.int64], sure: float) -> NDArray[np.int64]:
    """Return the conditions that are not surely behind the leader, by differences over the same draws."""
    mine = errors[:, alive]
    behind = mine - mine[:, [int(mine.mean(0).argmin())]]
    spread = behind.std(0, ddof=1) / np.sqrt(len(behind))
    left: NDArray[np.int64] = alive[behind.mean(0) <= sure * spread]
    return left


def _verdict(
    errors: NDArray[np.float64], alive: NDArray[np.int64], owner: NDArray[np.int64], passes: int
) -> Verdict:
    """Turn errors into one logit per class.

    A condition that dropped out is set behind the winner by their difference over the draws that
    both had, and never before one that stayed longer.
    """
    had = (~np.isnan(errors)).sum(0)
    winner = alive[int(errors[:, alive].mean(0).argmin())]
    best, logit, behind = errors[:, winner].mean(), np.zeros(len(owner)), -np.inf
    for count in sorted(set(had), reverse=True):
        these = np.flatnonzero(had == count)
        apart = np.maximum((errors[:count, these] - errors[:count, [winner]]).mean(0), behind + LEAST)
        logit[these], behind = -(best + apart), max(behind, float(apart.max()))
    classes = int(owner.max()) + 1
    logits = np.array([logit[owner == one].max() for one in range(classes)], np.float32)
    return Verdict(logits, np.array([had[owner == one].max() for one in range(classes)], np.int64), passes)
