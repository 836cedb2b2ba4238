"""``sorites conformal`` and ``recalibrate``: prediction sets and calibration by severity."""

from __future__ import annotations

from sorites.analysis.options import ConformalOptions, RecalibrateOptions
from sorites.cli.derived import derived
from sorites.cli.options import Format
from sorites.cli.output import say


@derived(ConformalOptions, format=(Format, "table"))
def conformal(options: ConformalOptions, format: str) -> None:
    """Compute the coverage and size of prediction sets at each severity.

    Reads the logits that "sorites run --keep-features" keeps. Sets are
    calibrated on the clean images of one half of the samples and evaluated
    on the other, and the other way round.
    """
    from sorites.analysis.uncertainty.conformal import conformal as compute
    from sorites.analysis.uncertainty.conformal import promised_range
    from sorites.cli.printing import print_frame

    answer = compute(
        options.run,
        alpha=options.alpha,
        methods=options.methods,
        models=options.models,
        measure=options.measure,
    )
    print_frame(answer, format)
    aside = format != "table"
    unweighted = answer.filter(weights="none")
    if unweighted.height:
        calibration = int(unweighted["calibration"].min())  # type: ignore[arg-type]
        low, high = promised_range(options.alpha, calibration)
        varies = (
            f"with {calibration} calibration images, 95 % of calibration sets cover {100 * low:.1f} to"
            f" {100 * high:.1f} % of them"
            if low < 1
            else f"{calibration} calibration images are too few, so that every set has all classes"
        )
        say(
            f"promised: {100 * (1 - options.alpha):g} % of clean images; {varies}. Nothing is promised for"
            " shifted images, and by a measure.",
            err=aside,
        )


@derived(RecalibrateOptions, format=(Format, "table"))
def recalibrate(options: RecalibrateOptions, format: str) -> None:
    """Recalibrate models on clean images, and judge them at each severity.

    Reads the logits that "sorites run --keep-features" keeps; prints NLL,
    Brier score and calibration errors. What is fitted on one half of the
    samples is judged on the other, and the other way round.
    """
    from sorites.analysis.uncertainty.recalibration import recalibrate as compute
    from sorites.cli.printing import print_frame

    print_frame(compute(options.run, methods=options.methods, models=options.models), format)
