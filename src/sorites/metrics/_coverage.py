"""Intervals that hold the truth in less or more than 93 to 97 % of simulated runs, and what is said beside their numbers.

The figures come from ``python -m tests.metrics.coverage_laws`` (docs/metrics.md has them all); a test keeps them true. Those of
mAP, which stand for all numbers of detectors, come from ``tests.metrics.box_coverage``.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Coverage:
    """The per cent of 95 % intervals that held the truth in runs of three sizes, and why it is not 95."""

    shares: tuple[float, float, float]
    why: str
    pooled_over: str = ""
    """A column; the note is for answers that are not grouped by it."""
    sizes: tuple[int, int, int] = (20, 100, 1000)
    """The samples of the simulated runs."""

    @property
    def below(self) -> float:
        """The number of samples below which the note is needed: the least size from which all shares are near 95 %."""
        off = [size for size, share in zip((*self.sizes[1:], float("inf")), self.shares, strict=True) if not 93 <= share <= 97]
        return max(off, default=0)


_WIDE_SHARE = Coverage((99.8, 97.6, 96.5), "it takes an average precision for a share, and is wider than it need be")
_THRESHOLD = Coverage((99.9, 99.6, 96.0), "few pictures say little of where the threshold lies")
_FEW_THINGS = Coverage((89.5, 94.5, 95.0), "resamples of few pictures vary too little", sizes=(20, 100, 500))
_SKEWED = Coverage((87.5, 93.3, 94.0), "the mean of few skewed numbers is not normal")

NOTED: dict[str, Coverage] = {
    "calibration_error": Coverage((19.9, 45.1, 94.5), "a gap by chance is still a gap, so the value is too high"),
    "failure_point": Coverage((91.3, 91.3, 89.5), "it takes the shifts of one sample for independent", "shift"),
    "attribute_gap": Coverage((90.7, 94.5, 91.4), "a percentile bootstrap is somewhat too narrow"),
    "aurc": Coverage((88.4, 94.2, 96.0), "the area of few pictures is not normal"),
    "f1_at_tpr95": Coverage((92.2, 92.0, 94.5), "it holds the threshold fixed"),
    "paired_difference": Coverage((97.8, 95.7, 94.8), "it does not collapse where hardly a verdict differs"),
    "disagreement": Coverage((98.0, 97.3, 96.4), "it does not collapse where hardly a verdict differs"),
    **dict.fromkeys(("map", "map_numbers", "mean_map", "dial_map", "map_drop", "tide"), _FEW_THINGS),
    "mean_degree": _SKEWED,
    "lens_degree": _SKEWED,
    **dict.fromkeys(("aupr_in", "aupr_out", "aupr_in_trapz", "aupr_out_trapz"), _WIDE_SHARE),
    **dict.fromkeys(("fpr95_ood_pos", "fpr95_id_pos"), _THRESHOLD),
}


def interval_note(metric: str, answer: pl.DataFrame) -> str:
    """Say in how many runs of this size the intervals of an answer hold the truth; empty where that is near 95 %.

    An answer that holds several numbers, as that of ``ood``, is asked about each of them.
    """
    if metric not in NOTED and "metric" in answer.columns:
        parts = [interval_note(name, some) for (name,), some in answer.group_by("metric", maintain_order=True) if name in NOTED]
        return "; ".join(part for part in parts if part)
    found = NOTED.get(metric)
    if found is None or found.pooled_over in answer.columns or not {"low", "n"} <= set(answer.columns):
        return ""
    sizes = answer.filter(pl.col("low").is_not_null() | pl.col("high").is_not_null())["n"]
    if not len(sizes) or min(sizes) >= found.below:
        return ""
    (small, middle, large), (few, more, most) = (f"{share:.0f}" for share in found.shares), found.sizes
    held = f"{small}, {middle} and {large} % of simulated runs of {few}, {more} and {most} samples"
    return f"the 95 % intervals of {metric} hold the truth in {held}: {found.why}"
