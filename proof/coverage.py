"""The coverage of every metric's 95 % interval in simulated runs with a known truth.

Every law of ``tests.metrics.coverage_laws`` and ``tests.metrics.box_coverage`` is drawn 2,000 times with 20,
100 and 1,000 samples of several correlated images each. ``docs/metrics.md`` has the figures. With 100 and 1,000 samples between 93 and 99 %
of the intervals must contain the truth; a metric without an interval at some size is reported without a
figure.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from tests.metrics import box_coverage
from tests.metrics.coverage import Law, Make, covered_all
from tests.metrics.coverage_laws import DRAWS, LAWS, SIZES

from proof._lines import Line

LEAST, MOST = 93.0, 99.0
CELLS = 500_000
"""Images of a batch of draws; a table of a million images with boxes takes a gigabyte."""


def run(names: tuple[str, ...] = (), sizes: tuple[int, ...] = SIZES) -> Iterator[Line]:
    """Yield the coverage of every law at every size, in per cent; laws about the same runs share the draws."""
    groups: dict[Make, dict[str, Law]] = {}
    for name, law in {**LAWS, **box_coverage.LAWS}.items():
        if not names or name.split(",")[0] in names:
            groups.setdefault(law.make, {})[name] = law
    for n in sizes:
        for laws in groups.values():
            for name, share in covered_all(laws, n, DRAWS, cells=CELLS).items():
                yield _line(f"{name}, n = {n}", 100 * share, n)


def _line(name: str, share: float, n: int) -> Line:
    if math.isnan(share):
        return Line(name, 0.0, "no interval")
    return Line(name, share) if n < 100 else Line(name, share, least=LEAST, most=MOST)


if __name__ == "__main__":
    chosen = sys.argv[2:]
    for line in run(tuple(chosen), tuple(map(int, sys.argv[1].split(",")))):
        print(line, flush=True)
