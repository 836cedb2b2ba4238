"""Questions of the one table. A metric is a pure function ``(table, by)`` to a frame of by + value + n (+ low, high).

Intervals are two-sided 95 % throughout; shares and drops are fractions, not percent.
"""

from sorites.metrics.accuracy import accuracy, accuracy_drop, mean_accuracy
from sorites.metrics.calibration import calibration_error, reliability
from sorites.metrics.corruption import corruption_error, relative_corruption_error
from sorites.metrics.failure import failure_histogram, failure_point, survival, trajectories
from sorites.metrics.ranking import rank
from sorites.metrics.rows import with_clean

__all__ = [
    "accuracy",
    "accuracy_drop",
    "calibration_error",
    "corruption_error",
    "failure_histogram",
    "failure_point",
    "mean_accuracy",
    "rank",
    "relative_corruption_error",
    "reliability",
    "survival",
    "trajectories",
    "with_clean",
]
