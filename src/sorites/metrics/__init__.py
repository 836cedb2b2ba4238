"""Metrics: pure functions ``(table, by)`` that return a frame with the ``by`` columns, value, n and often
low and high.

Intervals are two-sided 95 % intervals; shares and drops are fractions, not percent. A metric only reads
the table; it loads no images and knows nothing about runs. To write a metric, use ``select_rows``,
``judged_rows``, ``wilson_interval``, ``paired_interval``, ``normal_interval`` and ``answer_frame``.
``interval_note`` reports where the coverage of an answer's intervals is known to differ from 95 %.
"""

from sorites.metrics.abstention import augrc, aurc, risk_coverage, scod
from sorites.metrics.accuracy import (
    accuracy,
    accuracy_drop,
    dial_accuracy,
    dial_drop,
    edited_accuracy,
    filtered_accuracy,
    lens_accuracy,
    lens_correlation,
    lens_degree,
    lens_field,
    mean_accuracy,
    mean_degree,
    with_lenses,
)
from sorites.metrics.attributes import attribute_accuracy, attribute_gap, ood_share, partition_accuracy
from sorites.metrics.calibration import adaptive_calibration_error, calibration_error, reliability
from sorites.metrics.camera import (
    camera_control,
    disagreement,
    setting_accuracy,
    setting_share,
    setting_table,
    solution_overlap,
    solution_space,
    with_settings,
)
from sorites.metrics.comparison import paired_difference, rank, rank_agreement
from sorites.metrics.confusion import confusion
from sorites.metrics.control.tables import control_policies, control_transfer
from sorites.metrics.corruption import corruption_error, relative_corruption_error
from sorites.metrics.detection.at_confidence import (
    box_confusion,
    box_curve,
    box_f1,
    box_precision,
    box_recall,
)
from sorites.metrics.detection.box_grids import (
    box_failure_contour,
    box_interaction,
    grid_kept,
    grid_map,
    grid_recall,
)
from sorites.metrics.detection.box_ood import box_auroc, box_fpr95, unknown_flagged, unknown_recall
from sorites.metrics.detection.failure import (
    box_failure_histogram,
    box_failure_severity,
    box_survival,
    objects,
)
from sorites.metrics.detection.mean_ap import (
    dial_map,
    map,
    map_corruption_error,
    map_drop,
    map_numbers,
    mean_map,
    mean_map_numbers,
)
from sorites.metrics.detection.ranks import map_rank
from sorites.metrics.detection.tide import mean_tide, tide
from sorites.metrics.failure import (
    failure_histogram,
    failure_severity,
    survival,
    trajectories,
)
from sorites.metrics.grids import failure_contour, grid_accuracy, interaction
from sorites.metrics.half_accuracy import half_accuracy_severity
from sorites.metrics.intervals import interval_note, normal_interval, paired_interval, wilson_interval
from sorites.metrics.levels import correlation, level_curve, level_map, sensitivity
from sorites.metrics.line import line_gain, on_the_line, partial_correlation
from sorites.metrics.near_far import near_far
from sorites.metrics.ood import (
    aupr_in,
    aupr_in_trapz,
    aupr_out,
    aupr_out_trapz,
    auroc,
    f1,
    f1_at_tpr95,
    fpr95_id_pos,
    fpr95_ood_pos,
    mean_score,
    ood,
    score_accuracy,
    score_histogram,
)
from sorites.metrics.rows import (
    SETTING_KEY,
    answer_frame,
    judged_rows,
    select_rows,
    with_clean,
    with_settings_key,
)

__all__ = [
    "SETTING_KEY",
    "accuracy",
    "accuracy_drop",
    "adaptive_calibration_error",
    "answer_frame",
    "attribute_accuracy",
    "attribute_gap",
    "augrc",
    "aupr_in",
    "aupr_in_trapz",
    "aupr_out",
    "aupr_out_trapz",
    "aurc",
    "auroc",
    "box_auroc",
    "box_confusion",
    "box_curve",
    "box_f1",
    "box_failure_contour",
    "box_failure_histogram",
    "box_failure_severity",
    "box_fpr95",
    "box_interaction",
    "box_precision",
    "box_recall",
    "box_survival",
    "calibration_error",
    "camera_control",
    "confusion",
    "control_policies",
    "control_transfer",
    "correlation",
    "corruption_error",
    "dial_accuracy",
    "dial_drop",
    "dial_map",
    "disagreement",
    "edited_accuracy",
    "f1",
    "f1_at_tpr95",
    "failure_contour",
    "failure_histogram",
    "failure_severity",
    "filtered_accuracy",
    "fpr95_id_pos",
    "fpr95_ood_pos",
    "grid_accuracy",
    "grid_kept",
    "grid_map",
    "grid_recall",
    "half_accuracy_severity",
    "interaction",
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
    "mean_map_numbers",
    "mean_score",
    "mean_tide",
    "near_far",
    "normal_interval",
    "objects",
    "on_the_line",
    "ood",
    "ood_share",
    "paired_difference",
    "paired_interval",
    "partial_correlation",
    "partition_accuracy",
    "rank",
    "rank_agreement",
    "relative_corruption_error",
    "reliability",
    "risk_coverage",
    "scod",
    "score_accuracy",
    "score_histogram",
    "select_rows",
    "sensitivity",
    "setting_accuracy",
    "setting_share",
    "setting_table",
    "solution_overlap",
    "solution_space",
    "survival",
    "tide",
    "trajectories",
    "unknown_flagged",
    "unknown_recall",
    "wilson_interval",
    "with_clean",
    "with_lenses",
    "with_settings",
    "with_settings_key",
]
