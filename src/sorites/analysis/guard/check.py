"""``sorites guard check``: do the promised rates still hold on new images, and has the stream drifted?"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.analysis.guard.rules import rate
from sorites.analysis.options import GuardCheckOptions
from sorites.core.errors import InvalidOption, SoritesError
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.deploy.drift import SHUFFLES, compare_features, compare_scores
from sorites.deploy.guard import Guard, Scores
from sorites.deploy.record import REFERENCE, Rate, read_bytes
from sorites.evaluation.images import LeftOut, readable
from sorites.evaluation.samples import hashed_samples

# Images scored at a time.
BATCH = 32


@dataclass(frozen=True)
class Comparison:
    """A test whether something has changed: what was promised, what was found, and the p value.

    ``promised`` and ``found`` are null for tests of drift, which compare distributions.
    """

    name: str
    promised: Rate | None
    found: Rate | None
    p: float
    changed: bool


@dataclass(frozen=True)
class GuardCheck:
    """The result of a check.

    Attributes:
        images: Images that were scored.
        skipped: A sentence about images that could not be read; empty if there are none.
        level: The p value up to which a single test counts as changed: the rate divided by the tests.
        tests: The tests.
        alarm: The alarm rate on the new images.
        risk: The share of errors among labelled images without an alarm.
    """

    images: int
    skipped: str
    level: float
    tests: tuple[Comparison, ...]
    alarm: Rate
    risk: Rate

    @property
    def holds(self) -> bool:
        """Return whether no test found a change."""
        return not any(test.changed for test in self.tests)


def check_guard(
    file: str | Path,
    source: str,
    *,
    limit: int | None = None,
    rate: float = 0.01,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> GuardCheck:
    """Check a guard on new images: its alarm rate, its risk, and whether scores and features have drifted.

    Args:
        file: A guard: guard.json, or its folder.
        source: New images: folder:PATH.
        limit: Use only the first N samples of a fixed random order.
        rate: Rate at which all tests together raise a false alarm if nothing has changed.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: A progress bar.

    Returns:
        The tests and rates; labels are used where images have them.
    """
    options = GuardCheckOptions(file=file, source=source, limit=limit, rate=rate, max_pixels=max_pixels)
    with options.reading():
        return checked(options, bar)


def checked(options: GuardCheckOptions, bar: Bar | None = None) -> GuardCheck:
    """Check a guard, like ``check_guard``, with options as one object."""
    least = 4 / (1 + SHUFFLES)
    if not least <= options.rate < 1:
        raise InvalidOption(
            "rate", f"{option('rate', None)}: expected a number from {least:g} to 1, got {options.rate:g}"
        )
    guard = Guard(options.file)
    seen = _scored(guard, options, bar)
    return compared(guard, seen, options.rate)


@dataclass(frozen=True)
class Seen:
    """New images: their raw outputs, and whether the model gets them wrong (None without a label)."""

    scores: NDArray[np.float64]
    features: NDArray[np.float32] | None
    wrong: list[bool | None]
    skipped: str = ""


def _scored(guard: Guard, options: GuardCheckOptions, bar: Bar | None) -> Seen:
    labels = labels_of(guard.record.label_space)
    samples = hashed_samples(core.source(options.source, labels))
    count = len(samples) if options.limit is None else min(options.limit, len(samples))
    left = LeftOut()
    images = readable(islice(samples, count), left)
    tick = bar("scoring", count) if bar is not None else None
    parts: list[Scores] = []
    wrong: list[bool | None] = []
    while chunk := list(islice(images, BATCH)):
        outputs = guard.score([image for _, image in chunk])
        parts.append(outputs)
        places = {name: i for i, name in enumerate(labels.ids)}
        for (sample, _), best in zip(chunk, outputs.logits.argmax(axis=1), strict=True):
            predicted = places.get(guard.record.classes[int(best)])
            wrong.append(predicted not in sample.right if sample.right else None)
        if tick is not None:
            tick(len(chunk))
    if not parts:
        raise SoritesError(f"{options.source}: none of {count} images could be read. {left.say()}")
    return Seen(
        np.concatenate([part.scores for part in parts]),
        None
        if parts[0].features is None
        else np.concatenate([part.features for part in parts if part.features is not None]),
        wrong,
        left.say(),
    )


def compared(guard: Guard, seen: Seen, total_rate: float) -> GuardCheck:
    """Compare new images with what a guard promises for clean ones."""
    alarm = ~(seen.scores <= guard.record.threshold)
    judged = np.array([value is not None for value in seen.wrong])
    quiet = judged & ~alarm
    errors = np.array([bool(value) for value in seen.wrong])[quiet]
    found = {
        "alarm rate": rate(alarm, np.arange(len(alarm))),
        "risk": rate(errors, np.arange(len(errors))),
    }
    promised = guard.record.rates_of("clean")
    pairs = [("alarm rate", promised.alarm), ("risk", promised.risk)]
    tests: list[tuple[str, Rate | None, Rate | None, float]] = [
        (name, before, found[name], _fisher(before, found[name]))
        for name, before in pairs
        if before.n and found[name].n
    ]
    tests += [(name, None, None, p) for name, p in _drift(guard, seen)]
    level = total_rate / len(tests)
    results = tuple(Comparison(name, old, new, p, p <= level) for name, old, new, p in tests)
    return GuardCheck(len(alarm), seen.skipped, level, results, found["alarm rate"], found["risk"])


def _fisher(before: Rate, now: Rate) -> float:
    """Return the p value of Fisher's exact test of two shares."""
    from scipy.stats import fisher_exact

    table = [[round((side.value or 0.0) * side.n), side.n] for side in (before, now)]
    return float(fisher_exact([[hits, n - hits] for hits, n in table])[1])


def _drift(guard: Guard, seen: Seen) -> Iterator[tuple[str, float]]:
    data = read_bytes(guard.path.parent / REFERENCE, guard.record.files.get(REFERENCE))
    with np.load(io.BytesIO(data), allow_pickle=False) as reference:
        yield "scores", compare_scores(reference["scores"], seen.scores).p
        if "features" in reference and seen.features is not None:
            yield "features", compare_features(reference["features"], seen.features).p
