"""Diffusion classifier: classify an image by the prediction error of a diffusion model under each class (Li
et al., ICCV 2023).

The same noise draws are added to the image for all classes; the class whose prompt gives the lowest error
wins. Classes that are significantly behind drop out in stages, and sampling stops when one class is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.arithmetic import reproducible
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.samples import ImageU8
from sorites.diffusion.latents import NOISE_STEPS, add_noise, latents_of, predict_noise
from sorites.diffusion.pipeline import Pipe

LOSSES = ("l1", "l2")
# Noisy images per forward pass.
BATCH = 48
# Maps (first draw, end, condition numbers) to prediction errors, draws x conditions.
ErrorFunction = Callable[[int, int, NDArray[np.int64]], NDArray[np.float64]]
# Minimum gap between the logits of a class that dropped out and those that stayed.
MIN_GAP = 1e-5


@dataclass(frozen=True)
class ClassifierOptions:
    """Parameters of the classifier.

    Attributes:
        draws: Maximum number of noise draws.
    """

    draws: int = 32
    loss: str = "l1"
    """``l1`` (mean absolute error, as in CNS-Bench) or ``l2`` (mean squared error)."""
    first: int = 4
    """Draws before classes first drop out; after that they drop out whenever the number of draws has
    doubled.
    """
    sure: float = 2.0
    """A class drops out when it is behind the leader by this many standard errors of their paired difference;
    0 disables this.
    """
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("draws", 1 <= self.draws <= 10_000, "a whole number from 1 to 10000"),
            ("loss", self.loss in LOSSES, " or ".join(LOSSES)),
            ("first", 2 <= self.first <= 10_000, "a whole number from 2 to 10000"),
            ("sure", 0 <= self.sure <= 100, "a number of standard errors from 0 (never) to 100"),
        )
        for name, valid, expected in checks:
            if not valid:
                raise SoritesError(f"{name}: expected {expected}, got {getattr(self, name)!r}")

    @property
    def stages(self) -> tuple[int, ...]:
        """The numbers of draws after which classes may drop out; the last is the end."""
        ends, at = [], self.first
        while self.sure and at < self.draws:
            ends.append(at)
            at *= 2
        return (*ends, self.draws)

    def facts(self) -> dict[str, Any]:
        """Return all parameters by name."""
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """Result for one image.

    Attributes:
        logits: Negative error per class.
        draws: Number of draws per class.
        passes: Forward passes of the network.
    """

    logits: NDArray[np.float32]
    draws: NDArray[np.int64]
    passes: int


def classify(
    pipe: Pipe, image: ImageU8, conditions: Sequence[Any], owners: Sequence[int], how: ClassifierOptions
) -> Verdict:
    """Classify one 8-bit image of the pipeline's width.

    All draws follow from the image and the seed. A class is as good as the best of its conditions.

    Args:
        pipe: The pipeline.
        image: The image.
        conditions: Encoded prompts, or class numbers for a DiT.
        owners: The class that each condition describes.
        how: Parameters.
    """
    import torch

    with pipe.busy, reproducible(pipe.device), torch.no_grad():
        return staged(_error_function(pipe, image, conditions, how), owners, how)


def _error_function(
    pipe: Pipe, image: ImageU8, conditions: Sequence[Any], how: ClassifierOptions
) -> ErrorFunction:
    latent = latents_of(pipe, [image])
    noise, times = _draws(latent, image, how)

    def errors(start: int, end: int, alive: NDArray[np.int64]) -> NDArray[np.float64]:
        remaining = [conditions[int(index)] for index in alive]
        return _errors(pipe, latent, noise[start:end], times[start:end], remaining, how)

    return errors


def staged(compute_errors: ErrorFunction, owners: Sequence[int], how: ClassifierOptions) -> Verdict:
    """Classify by errors that are computed in stages."""
    owner, errors = np.asarray(owners), np.full((how.draws, len(owners)), np.nan)
    alive, done, passes = np.arange(len(owners)), 0, 0
    for end in how.stages:
        errors[done:end, alive] = compute_errors(done, end, alive)
        passes += (end - done) * len(alive)
        done = end
        if how.sure and done < how.draws:
            alive = _survivors(errors[:done], alive, how.sure)
        if len(set(owner[alive])) == 1:
            break
    return _verdict(errors[:done], alive, owner, passes)


def _draws(latent: Any, image: ImageU8, how: ClassifierOptions) -> tuple[Any, Any]:
    """Return noise and noise steps; every prefix of the steps covers the whole range evenly (van der
    Corput 1935).
    """
    import torch

    key = digest(np.ascontiguousarray(image).tobytes().hex(), image.shape, how.seed, size=8)
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
    offset = float(torch.rand(1, generator=generator))
    spread = np.array([(_radical_inverse(i) + offset) % 1 for i in range(how.draws)])
    times = torch.from_numpy((spread * NOISE_STEPS).astype(np.int64).clip(0, NOISE_STEPS - 1)).to(
        latent.device
    )
    return torch.randn((how.draws, *latent.shape[1:]), generator=generator).to(latent), times


def _radical_inverse(number: int) -> float:
    """Mirror the binary digits of a number at the point."""
    return int(f"{number:032b}"[::-1], 2) / 2**32


def _errors(
    pipe: Pipe, latent: Any, noise: Any, times: Any, conditions: Sequence[Any], how: ClassifierOptions
) -> NDArray[np.float64]:
    """Return the prediction errors of the network, draws x conditions."""
    import torch

    noisy, aim = add_noise(pipe, latent.expand_as(noise), noise, times)
    pairs = [(draw, place) for draw in range(len(noise)) for place in range(len(conditions))]
    errors = []
    for batch in (pairs[i : i + BATCH] for i in range(0, len(pairs), BATCH)):
        rows = [draw for draw, _ in batch]
        prediction = predict_noise(pipe, noisy[rows], times[rows], [conditions[index] for _, index in batch])
        difference = (prediction - aim[rows]).float()
        size = difference.abs() if how.loss == "l1" else difference**2
        errors.append(size.mean(dim=tuple(range(1, size.ndim))))
    return np.asarray(torch.cat(errors).cpu().double().numpy()).reshape(len(noise), len(conditions))


def _survivors(errors: NDArray[np.float64], alive: NDArray[np.int64], sure: float) -> NDArray[np.int64]:
    """Return the conditions that are not significantly behind the leader, by paired differences."""
    remaining = errors[:, alive]
    behind = remaining - remaining[:, [int(remaining.mean(0).argmin())]]
    standard_error = behind.std(0, ddof=1) / np.sqrt(len(behind))
    survivors: NDArray[np.int64] = alive[behind.mean(0) <= sure * standard_error]
    return survivors


def _verdict(
    errors: NDArray[np.float64], alive: NDArray[np.int64], owner: NDArray[np.int64], passes: int
) -> Verdict:
    """Convert errors to one logit per class.

    A condition that dropped out is placed behind the winner by their mean difference over shared draws, and
    never ahead of one that stayed longer.
    """
    draw_counts = (~np.isnan(errors)).sum(0)
    winner = alive[int(errors[:, alive].mean(0).argmin())]
    best, logit, behind = errors[:, winner].mean(), np.zeros(len(owner)), -np.inf
    for count in sorted(set(draw_counts), reverse=True):
        dropped = np.flatnonzero(draw_counts == count)
        apart = np.maximum((errors[:count, dropped] - errors[:count, [winner]]).mean(0), behind + MIN_GAP)
        logit[dropped], behind = -(best + apart), max(behind, float(apart.max()))
    classes = int(owner.max()) + 1
    logits = np.array([logit[owner == class_].max() for class_ in range(classes)], np.float32)
    return Verdict(
        logits, np.array([draw_counts[owner == class_].max() for class_ in range(classes)], np.int64), passes
    )
