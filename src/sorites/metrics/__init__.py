"""Metrics turn the one table into numbers: pure functions ``(table, by)`` that return a frame of by + value + n (+ low, high).

Intervals are two-sided 95 % throughout; shares and drops are fractions, not percent. For metrics of your own the room exports
``select_rows``, ``judged_rows``, ``wilson_interval``, ``paired_interval``, ``normal_interval`` and ``answer_frame``;
``interval_note`` says of an answer where its intervals are known to hold the truth less or more often than that.
A metric reads the table alone: it loads no pictures and knows nothing of runs.
"""

from sorites.metrics._coverage import interval_note
from sorites.metrics._intervals import normal_interval, paired_interval, wilson_interval
from sorites.metrics._rows import answer_frame, judged_rows, select_rows, with_clean
from sorites.metrics._stops import STOP, with_stops
from sorites.metrics.abstain import aurc, risk_coverage
from sorites.metrics.accuracy import accuracy, accuracy_drop, mean_accuracy
from sorites.metrics.agreement import rank_agreement
from sorites.metrics.attributes import attribute_accuracy, attribute_gap, partition_accuracy
from sorites.metrics.box_drop import map_corruption_error, map_drop, map_rank
from sorites.metrics.box_failure import box_failure_histogram, box_failure_point, box_survival, things
from sorites.metrics.box_map import dial_map, map, map_numbers, mean_map
from sorites.metrics.calibration import calibration_error, reliability
from sorites.metrics.camera_settings import camera_control, setting_accuracy, setting_share, setting_table, with_settings
from sorites.metrics.corruption import corruption_error, relative_corruption_error
from sorites.metrics.degrees import lens_degree, mean_degree
from sorites.metrics.dial import dial_accuracy, dial_drop
from sorites.metrics.failure import failure_histogram, failure_point, survival, trajectories
from sorites.metrics.filtered import filtered_accuracy
from sorites.metrics.half import half_accuracy
from sorites.metrics.lenses import lens_accuracy, lens_correlation, lens_field, with_lenses
from sorites.metrics.levels import correlation, level_curve, level_map, sensitivity
from sorites.metrics.line import line_gain, on_the_line, partial_correlation
from sorites.metrics.ood import aupr_in, aupr_in_trapz, aupr_out, aupr_out_trapz, auroc, fpr95_id_pos, fpr95_ood_pos, ood
from sorites.metrics.pairs import paired_difference
from sorites.metrics.ranking import rank
from sorites.metrics.scores import mean_score, score_accuracy, score_histogram
from sorites.metrics.solution_space import disagreement, solution_overlap, solution_space
from sorites.metrics.strange_attributes import strange_share
from sorites.metrics.threshold import f1, f1_at_tpr95
from sorites.metrics.tide import tide

__all__ = [
    "STOP",
    "accuracy",
    "accuracy_drop",
    "answer_frame",
    "attribute_accuracy",
    "attribute_gap",
    "aupr_in",
    "aupr_in_trapz",
    "aupr_out",
    "aupr_out_trapz",
    "aurc",
    "auroc",
    "box_failure_histogram",
    "box_failure_point",
    "box_survival",
    "calibration_error",
    "camera_control",
    "correlation",
    "corruption_error",
    "dial_accuracy",
    "dial_drop",
    "dial_map",
    "disagreement",
    "f1",
    "f1_at_tpr95",
    "failure_histogram",
    "failure_point",
    "filtered_accuracy",
    "fpr95_id_pos",
    "fpr95_ood_pos",
    "half_accuracy",
    "interval_note",
    "judged_rows",
    "lens_accuracy",
    "lens_correlation",
    "lens_degree",
    "lens_field",
    "level_curve",
    "level_map",
    "line_gain",
    "map",
    "map_corruption_error",
    "map_drop",
    "map_numbers",
    "map_rank",
    "mean_accuracy",
    "mean_degree",
    "mean_map",
    "mean_score",
    "normal_interval",
    "on_the_line",
    "ood",
    "paired_difference",
    "paired_interval",
    "partial_correlation",
    "partition_accuracy",
    "rank",
    "rank_agreement",
    "relative_corruption_error",
    "reliability",
    "risk_coverage",
    "score_accuracy",
    "score_histogram",
    "select_rows",
    "sensitivity",
    "setting_accuracy",
    "setting_share",
    "setting_table",
    "solution_overlap",
    "solution_space",
    "strange_share",
    "survival",
    "things",
    "tide",
    "trajectories",
    "wilson_interval",
    "with_clean",
    "with_lenses",
    "with_settings",
    "with_stops",
]
