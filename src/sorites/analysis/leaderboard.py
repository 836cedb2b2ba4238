"""OOD results of many runs in one table: one row per model, scorer and suite, merged from files and runs.

A row has the mean AUROC and FPR over the sets of OOD images (OpenOOD), the digest of the run that it is from
and, if the run is available, whether the difference to the next row is clear: paired on the same images,
with DeLong's variance, clustered by sample, and Holm's correction within a suite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import norm

from sorites.core.errors import Notice, SoritesError, UnfinishedRun, tell
from sorites.core.plugins import scorer_version
from sorites.core.rng import digest
from sorites.core.table import read
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.storage.record import read_record
from sorites.io.files import write_bytes
from sorites.io.paths import is_dir
from sorites.io.readers import json_file
from sorites.metrics.accuracy import accuracy
from sorites.metrics.intervals import Bounds, area
from sorites.metrics.rows import SET
from sorites.metrics.separation import (
    HAS_SCORE,
    UNTOUCHED,
    Pair,
    Pool,
    auroc,
    false_alarms,
    framework_named,
    placements,
    scored_rows,
)

SCHEMA, VERSION = "sorites-results", 1
Floats = NDArray[np.float64]
Samples = NDArray[np.uint64]
# Verdicts on the difference to the next row.
CLEAR, UNCLEAR, UNKNOWN = "clear", "not clear", "cannot be separated"
ALPHA = 0.05


@dataclass(frozen=True)
class Result:
    """The result of one model and scorer on one suite.

    Attributes:
        suite: Name of the suite.
        model: Name of the model.
        model_version: Its version.
        scorer: Name of the scorer.
        scorer_version: Version of its numbers.
        run_id: Digest of what the numbers follow from.
        images_digest: Digest of the ids of all images with scores.
        auroc: Mean AUROC over the sets of OOD images; ``low`` and ``high`` are its 95 % interval.
        fpr95: Mean share of in-distribution images flagged where 95 % of the OOD images are.
        accuracy: Accuracy on clean in-distribution images; null without labels.
        sets: The sets of OOD images.
        id_images: The number of in-distribution images.
        ood_images: The number of OOD images.
        framework: What counts as in-distribution and OOD.
    """

    suite: str
    model: str
    model_version: str
    scorer: str
    scorer_version: str
    run_id: str
    images_digest: str
    auroc: float
    low: float | None
    high: float | None
    fpr95: float
    accuracy: float | None
    sets: tuple[str, ...]
    id_images: int
    ood_images: int
    framework: str = "semantic"

    @property
    def key(self) -> tuple[str, ...]:
        """The key of a result. Results of two files with the same key must agree."""
        return (self.suite, self.model, self.scorer, self.run_id, self.framework)


@dataclass(frozen=True)
class Influence:
    """The AUROC of each set, and the placements that its variance follows from.

    Attributes:
        values: AUROC by set.
        ood: Placements of the OOD images of each set, in the order of their ids.
        known: Mean placements over all sets of the in-distribution images, in the order of their ids.
        samples: The sample of each OOD image of each set, in the same order.
        known_samples: The sample of each in-distribution image.
    """

    values: Mapping[str, float]
    ood: Mapping[str, Floats]
    known: Floats
    samples: Mapping[str, Samples]
    known_samples: Samples

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    def error(self, other: Influence | None = None) -> float:
        """Return the standard error of the mean AUROC, or of its difference to ``other`` (same images).

        Samples are the units: the images of a sample under several shifts are not independent.
        """
        count, total = len(self.values), 0.0
        for name, placed in self.ood.items():
            rest = placed - (0 if other is None else other.ood[name])
            total += _variance(rest, self.samples[name]) / count**2
        total += _variance(self.known - (0 if other is None else other.known), self.known_samples)
        return math.sqrt(total)

    def bounds(self) -> Bounds:
        """Return Newcombe's interval of the mean AUROC, which does not collapse at 1; None below two
        samples of a set.
        """
        error = self.error()
        if math.isnan(error):
            return None, None
        images = len(self.known) + sum(map(len, self.ood.values()))
        samples = len(np.unique(self.known_samples)) + sum(len(np.unique(s)) for s in self.samples.values())
        ood = len(self.ood) ** 2 / sum(1 / len(placed) for placed in self.ood.values())
        return area(self.mean, len(self.known), ood, error**2, images / samples)


@dataclass(frozen=True)
class Ranked:
    """A result with its rank in its suite and the verdict on its difference to the next row."""

    result: Result
    rank: int
    verdict: str | None
    difference: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Board:
    """Results by suite, best first; ``evidence`` has the placements of results whose run was read."""

    rows: tuple[Result, ...]
    evidence: Mapping[tuple[str, ...], Influence]

    def suites(self) -> list[str]:
        return list(dict.fromkeys(row.suite for row in self.rows))

    def ranked(self, suite: str) -> list[Ranked]:
        """Return the results of a suite, best first, with the verdicts between neighbours."""
        rows = sorted(
            (row for row in self.rows if row.suite == suite),
            key=lambda row: (-row.auroc, row.fpr95, row.model, row.scorer),
        )
        tests = [self._test(one, other) for one, other in pairwise(rows)]
        adjusted = _holm([test[1] for test in tests if test is not None])
        found: list[Ranked] = []
        for place, row in enumerate(rows):
            test = tests[place] if place < len(tests) else None
            if test is not None:
                p = adjusted.pop(0)
                found.append(Ranked(row, place + 1, CLEAR if p < ALPHA else UNCLEAR, test[0], p))
            else:
                found.append(Ranked(row, place + 1, UNKNOWN if place < len(tests) else None))
        return found

    def _test(self, one: Result, other: Result) -> tuple[float, float] | None:
        """Return the difference and its p value; None without the scores of the same images."""
        first, second = self.evidence.get(one.key), self.evidence.get(other.key)
        same = one.images_digest == other.images_digest and one.framework == other.framework
        if first is None or second is None or not same or set(first.values) != set(second.values):
            return None
        difference, error = first.mean - second.mean, first.error(second)
        if not math.isfinite(error):
            return None
        return difference, float(2 * norm.sf(abs(difference) / error)) if error > 0 else float(
            difference == 0
        )


def collect(files: Sequence[str | Path], framework: str = "semantic") -> Board:
    """Read results and runs and merge them.

    Args:
        files: Run folders, and files that ``write_results`` wrote.
        framework: What counts as OOD in run folders: "semantic" or "full_spectrum".

    Raises:
        SoritesError: If a file is none of these or has no OOD scores, or two files disagree about one result.
    """
    rows: dict[tuple[str, ...], Result] = {}
    evidence: dict[tuple[str, ...], Influence] = {}
    for file in files:
        path = Path(file)
        found = results_of(path, framework) if is_dir(path) else [(row, None) for row in read_results(path)]
        if not found:
            raise SoritesError(_nothing(path, framework))
        for row, placed in found:
            if rows.setdefault(row.key, row) != row:
                raise SoritesError(
                    f"{path}: the result of {row.model} with {row.scorer} on {row.suite} differs from that of"
                    f" another file, although both are of run {row.run_id[:12]}"
                )
            if placed is not None:
                evidence[row.key] = placed
    if not rows:
        raise SoritesError("expected results or runs with OOD scores, got none")
    return Board(tuple(rows.values()), evidence)


def _nothing(path: Path, framework: str) -> str:
    """Return what to say about a file or run without a result, which no row of the page would show."""
    if not is_dir(path):
        return f"{path}: expected results, got an empty list. Leave the file out."
    return (
        f"{path}: expected a run with scores of both in-distribution and OOD images ({framework}), got none."
        " Leave it out, or repeat the run on a suite and source with both, such as stamps_ood."
    )


def results_of(folder: Path, framework: str = "semantic") -> list[tuple[Result, Influence]]:
    """Return the results of a finished run, with what their variance follows from."""
    if (incomplete := unfinished(folder)) is not None:
        raise UnfinishedRun(folder, f"{incomplete.found()} Repeat the run to finish it.")
    record, table = read_record(folder), read(folder).lazy()
    correct = {
        row["model"]: row["value"]
        for row in accuracy(table.filter(UNTOUCHED), by=("model",)).iter_rows(named=True)
    }
    rows, _ = scored_rows(table, ["model", "scorer", SET])
    known, ood = framework_named(framework)
    known = known if framework == "full_spectrum" else known & UNTOUCHED
    side = pl.when(ood).then(True).when(known).then(False)
    scores = (
        rows.filter(HAS_SCORE)
        .select("model", "scorer", SET, "image_id", "sample", "score", side=side)
        .filter(pl.col("side").is_not_null())
        .sort("image_id", "sample")
        .collect(engine="streaming")
    )
    found, one_sided = [], []
    for (model, scorer), part in sorted(
        scores.partition_by("model", "scorer", as_dict=True).items(), key=str
    ):
        if part["side"].n_unique() < 2:
            one_sided.append(f"{scorer} of {model}")
            continue
        placed, alarms = _placed(part)
        low, high = placed.bounds()
        result = Result(
            suite=record.suite.name,
            model=str(model),
            model_version=str(record.models.get(str(model), "")),
            scorer=str(scorer),
            scorer_version=str(scorer_version(str(scorer))),
            run_id=record.run_id,
            images_digest=digest(*part["image_id"], size=16).hex(),
            auroc=placed.mean,
            low=low,
            high=high,
            fpr95=alarms,
            accuracy=correct.get(str(model)),
            sets=tuple(placed.values),
            id_images=int((~part["side"]).sum()),
            ood_images=int(part["side"].sum()),
            framework=framework,
        )
        found.append((result, placed))
    if found and one_sided:
        text = f"{folder}: no row for {', '.join(one_sided)}: no scores of in-distribution or of OOD images"
        tell(Notice(text, code="left_out"))
    return found


def _placed(part: pl.DataFrame) -> tuple[Influence, float]:
    """Return the AUROCs and placements of one model and scorer, and the mean FPR."""
    in_distribution = part.filter(~pl.col("side"))
    known, known_samples = (in_distribution[name].to_numpy() for name in ("score", "sample"))
    values, ood, alarms, means = {}, {}, [], np.zeros(len(known))
    samples: dict[str, Samples] = {}
    for (name,), rows in sorted(part.filter("side").partition_by(SET, as_dict=True).items(), key=str):
        scores = rows["score"].to_numpy()
        two = Pair(Pool.of(known), Pool.of(scores))
        sorted_ood, sorted_known = placements(two)
        values[str(name)] = auroc(two)
        ood[str(name)] = _unsorted(sorted_ood, scores)
        samples[str(name)] = rows["sample"].to_numpy()
        means += _unsorted(sorted_known, known)
        alarms.append(false_alarms(two)[0])
    placed = Influence(values, ood, means / len(values), samples, known_samples)
    return placed, float(np.mean(alarms))


def _unsorted(values: Floats, scores: Floats) -> Floats:
    """Return values that belong to sorted scores in the order of the scores."""
    found = np.empty(len(values))
    found[np.argsort(scores, kind="stable")] = values
    return found


def _variance(values: Floats, samples: Samples) -> float:
    """Return the variance of a mean over images, clustered by sample; NaN of fewer than two samples."""
    codes = np.unique(samples, return_inverse=True)[1]
    sums = np.bincount(codes, values - values.mean()) / len(values)
    n = len(sums)
    return n / (n - 1) * float(np.sum(sums * sums)) if n > 1 else float("nan")


def _holm(values: Sequence[float]) -> list[float]:
    """Return p values after Holm's correction, in their order."""
    order = np.argsort(values, kind="stable")
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def write_results(rows: Iterable[Result], path: Path) -> Path:
    """Write results as a JSON file, which ``read_results`` reads and which can be merged with others."""
    ordered = sorted(rows, key=lambda row: row.key)
    content = {"schema": SCHEMA, "version": VERSION, "results": [asdict(row) for row in ordered]}
    write_bytes((json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), path)
    return path


def read_results(path: Path) -> list[Result]:
    """Read results.

    Raises:
        SoritesError: If the file is none of results, or a field is missing or of another type.
    """
    content = json_file(path, "results, written by sorites leaderboard")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or content.get("version") != VERSION:
        raise SoritesError(f"{path}: expected results with schema {SCHEMA} {VERSION}, or a run folder")
    rows = content.get("results")
    if not isinstance(rows, list):
        raise SoritesError(f"{path}: expected a list of results")
    return [_result(path, number, row) for number, row in enumerate(rows)]


_TEXTS = (
    "suite",
    "model",
    "model_version",
    "scorer",
    "scorer_version",
    "run_id",
    "images_digest",
    "framework",
)
_COUNTS = ("id_images", "ood_images")


def _result(path: Path, number: int, row: Any) -> Result:
    expected = {field.name for field in fields(Result)}
    if not isinstance(row, dict) or set(row) != expected:
        wrong = sorted(expected.symmetric_difference(row))[:1] if isinstance(row, dict) else ["an object"]
        raise SoritesError(f"{path}: result {number}: missing or unknown field {wrong[0]}")
    checks: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(_TEXTS, lambda value: isinstance(value, str)),
        **dict.fromkeys(_COUNTS, lambda value: type(value) is int and value > 0),
        **dict.fromkeys(("auroc", "fpr95"), _is_share),
        **dict.fromkeys(("low", "high", "accuracy"), lambda value: value is None or _is_share(value)),
        "sets": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    }
    for name, check in checks.items():
        if not check(row[name]):
            raise SoritesError(f"{path}: result {number}: unexpected {name}: {str(row[name])[:60]!r}")
    return replace(Result(**row), sets=tuple(row["sets"]))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
