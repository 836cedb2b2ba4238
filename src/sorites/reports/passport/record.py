"""The robustness record: a passport under the headings of the EU AI Act and of ISO/IEC TR 24029-1.

It is evidence for such documentation and certifies nothing; what Sorites cannot know is left to the provider
and marked.
"""

from __future__ import annotations

from pathlib import Path

from sorites.analysis.passport.document import AnyPassport, BoxPassport
from sorites.io.files import write_bytes
from sorites.reports.components.severities import title
from sorites.reports.passport.card import alarm_sentences, share, shift_count

RECORD_NAME = "robustness_record.md"
PROVIDER = "*To be stated by the provider.*"
STATEMENT = (
    "This record is evidence of one measurement. It is not a certificate, a conformity assessment or legal"
    " advice, and nobody has approved it. It follows the headings of Regulation (EU) 2024/1689 (AI Act),"
    " Annex IV and Article 15, and the steps of ISO/IEC TR 24029-1:2021, whose names here are not its"
    " wording, so that its numbers can be copied to where such documents ask for them. Passages in italics"
    " are left to the provider."
)


def write_record(passport: AnyPassport, folder: Path) -> None:
    """Write ``robustness_record.md``."""
    write_bytes(record(passport).encode(), folder / RECORD_NAME)


def record(passport: AnyPassport) -> str:
    """Return the record as Markdown."""
    parts = (
        _head(passport),
        _annex_iv(passport),
        _article_15(passport),
        _tr_24029(passport),
        _evidence(passport),
    )
    return "\n".join(line for part in parts for line in part)


def _head(passport: AnyPassport) -> list[str]:
    return [f"# Robustness record of {passport.model.name}", "", STATEMENT, ""]


def _measure(passport: AnyPassport) -> str:
    return "mAP" if isinstance(passport, BoxPassport) else "accuracy"


def _annex_iv(passport: AnyPassport) -> list[str]:
    model, battery, measure = passport.model, passport.battery, _measure(passport)
    parameters = "unknown" if model.parameters is None else f"{model.parameters:,}"
    return [
        "## Technical documentation (Annex IV)",
        "",
        "### 1. General description of the system",
        "",
        (
            f"Model `{model.name}`, version `{model.version}`, {parameters} parameters. Intended purpose:"
            f" {PROVIDER}"
        ),
        "",
        "### 2 (d). Data",
        "",
        "Training data: " + PROVIDER + " Images of this measurement:",
        "",
        "| part | suite | source | samples | images | with errors | content digest |",
        "|---|---|---|--:|--:|--:|---|",
        *(
            f"| {run.part} | {run.suite} | `{run.source}` | {run.samples} | {run.images} | {run.errors}"
            f" | `{run.digest[:16]}` |"
            for run in passport.runs
        ),
        "",
        "### 2 (g). Validation and testing procedures, metrics",
        "",
        (
            f"Battery {battery.name}, version {battery.version} (digest `{battery.digest[:16]}`), of Sorites"
            f" {passport.sorites}. Metric: {measure}; intervals are 95 %, and samples are their units. Each"
            f" shift"
            " changes images by a severity in its own unit, of which 0 is the unchanged image."
        ),
        *_left_out(passport),
        "",
        "### 3. Capabilities and limitations",
        "",
        f"- Clean {measure}: {share(passport.clean)}",
        f"- {measure.capitalize() if measure == 'accuracy' else measure} under shift, mean over"
        f" {shift_count(passport)}: {share(passport.shifted)}",
        f"- Greatest losses: {'; '.join(map(title, passport.weakest)) or 'none'}",
        "",
        "Foreseeable unintended outcomes and risks to health, safety and fundamental rights: " + PROVIDER,
        "",
        "### 4. Appropriateness of the metrics for this system",
        "",
        PROVIDER,
        "",
        "### 9. Post-market monitoring",
        "",
        PROVIDER
        + " A guard (`sorites guard`) flags images in operation whose OOD score exceeds a threshold.",
        "",
    ]


def _left_out(passport: AnyPassport) -> list[str]:
    if not passport.left_out:
        return []
    return ["", "Not measured:", "", *(f"- {part}: {why}" for part, why in passport.left_out.items())]


def _article_15(passport: AnyPassport) -> list[str]:
    sentences = [] if isinstance(passport, BoxPassport) else alarm_sentences(passport)
    knows = [f"- {text[0].upper()}{text[1:]}" for text in sentences]
    return [
        "## Accuracy, robustness and cybersecurity (Article 15)",
        "",
        "### 15 (3). Levels of accuracy and the relevant metrics",
        "",
        f"Clean {_measure(passport)}: {share(passport.clean)}. Whether this level is appropriate: {PROVIDER}",
        "",
        "### 15 (4). Resilience regarding errors, faults and inconsistencies of the environment",
        "",
        *_dials(passport),
        "",
        *(
            [
                "Whether the model notices (an alarm at a threshold that accepts 95 % of clean images):",
                "",
                *knows,
            ]
            if knows
            else ["Whether the model notices its failures: not measured for the weakest shifts."]
        ),
        "",
        "### 15 (5). Cybersecurity",
        "",
        "Attacks are not part of this battery (`sorites attack` measures one kind). " + PROVIDER,
        "",
    ]


def _dials(passport: AnyPassport) -> list[str]:
    what = "half of the objects lost at" if isinstance(passport, BoxPassport) else "half-accuracy severity"
    lines = [f"| shift | unit | tested up to | {what} | n |", "|---|---|--:|---|--:|"]
    lines += [
        f"| {title(dial.shift)} | {dial.unit} | {dial.top:g} | {dial.words} | {dial.half.n} |"
        for dial in passport.dials
    ]
    return lines


def _tr_24029(passport: AnyPassport) -> list[str]:
    return [
        "## Assessment of robustness (ISO/IEC TR 24029-1)",
        "",
        "### State robustness goals",
        "",
        PROVIDER + " Sorites sets no goal; a gate of `sorites compare` states one as rules.",
        "",
        "### Plan and conduct testing",
        "",
        (
            "Statistical and empirical methods: a benchmark with synthetic shifts at stated severities, on"
            " labelled"
            " images, as listed above. Formal methods were not used: nothing is proved for images that were"
            " not"
            " tested."
        ),
        "",
        "### Analyse and interpret the outcome",
        "",
        (
            "The numbers hold for these images and shifts, with the sampling error that the intervals"
            " state. They"
            " say nothing about shifts that are not listed, about severities above those tested, or about"
            " images"
            " of other sources. Interpretation for the intended purpose: " + PROVIDER
        ),
        "",
        "### Test objective achieved",
        "",
        PROVIDER,
        "",
    ]


def _evidence(passport: AnyPassport) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(passport.versions.items()))
    return [
        "## Evidence",
        "",
        f"Passport `{passport.hash}`; libraries: {versions or 'not recorded'}.",
        (
            "`sorites verify passport.json` computes every number again from the run files; `sorites check`"
            " compares"
            " the files with their digests."
        ),
        "",
    ]
