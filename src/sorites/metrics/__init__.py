"""Questions of the one table. A metric is a pure function ``(table, by)`` to a frame of by + value + n (+ low, high).

Intervals are two-sided 95 % throughout; shares and drops are fractions, not percent.
"""

from sorites.metrics.accuracy import accuracy
from sorites.metrics.failure import failure_histogram, failure_point, survival, trajectories
from sorites.metrics.rows import with_clean

__all__ = ["accuracy", "failure_histogram", "failure_point", "survival", "trajectories", "with_clean"]
