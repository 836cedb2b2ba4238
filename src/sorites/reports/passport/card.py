"""The badge (SVG) and the model card (Markdown) of a passport."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from sorites.analysis.passport.document import AnyPassport, BoxDial, BoxPassport, Dial, Number, Passport
from sorites.io.files import write_bytes
from sorites.reports.components.markup import count, several
from sorites.reports.components.severities import in_words, title
from sorites.reports.passport.numbers import between_words, half_interval

NAME = "badge.svg"
# Width of a letter in px, at 11 px Verdana or similar.
LETTER_WIDTH = 6.6
# Colour of the right half, by the share of clean accuracy left under shift.
COLOURS = ((0.75, "#1e6b4b"), (0.5, "#6b6a1e"), (0.25, "#8a5a12"), (0.0, "#a3341b"))


def write_badge(passport: AnyPassport, folder: Path) -> None:
    """Write ``badge.svg``."""
    write_bytes(badge(passport).encode(), folder / NAME)


def badge(passport: AnyPassport) -> str:
    """Return the badge: clean accuracy, and the mean over all listed shifts."""
    left = f"sorites {passport.battery.name} {passport.battery.version}"
    kind = "mAP " if isinstance(passport, BoxPassport) else ""
    right = f"{kind}{_percent(passport.clean)} clean · {_percent(passport.shifted)} shifted"
    retained = (passport.shifted.value or 0.0) / passport.clean.value if passport.clean.value else 0.0
    colour = next(colour for least, colour in COLOURS if retained >= least)
    left_px, right_px = (round(LETTER_WIDTH * len(text)) + 12 for text in (left, right))
    width = left_px + right_px
    label = escape(f"{left}: {right}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img"'
        f' aria-label="{label}"><title>{label}</title><rect width="{width}" height="20" rx="3"'
        f' fill="#3a3f46"/><path d="M{left_px} 0h{right_px - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left_px}z"'
        f' fill="{colour}"/><g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"'
        f' text-anchor="middle"><text x="{left_px / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{left_px + right_px / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )


def _percent(number: Number) -> str:
    return "–" if number.value is None else f"{100 * number.value:.0f} %"


CARD_NAME = "model_card.md"


def write_card(passport: AnyPassport, folder: Path) -> None:
    """Write ``model_card.md``."""
    text = box_card(passport) if isinstance(passport, BoxPassport) else card(passport)
    write_bytes(f"{front_matter(passport)}\n{text}".encode(), folder / CARD_NAME)


def front_matter(passport: AnyPassport) -> str:
    """Return the results as the ``model-index`` of a model card on the Hugging Face Hub (YAML).

    A value is left out where it is missing. The name of a metric says its interval and number of samples,
    for which the format has no fields. JSON is YAML, so each result is one line of JSON.
    """
    lines = ["---", "model-index:", f"- name: {json.dumps(passport.model.name)}", "  results:"]
    lines += [f"  - {json.dumps(result, ensure_ascii=False)}" for result in _results(passport)]
    return "\n".join([*lines, "---", ""])


def _results(passport: AnyPassport) -> list[dict[str, Any]]:
    boxes = isinstance(passport, BoxPassport)
    task = {"type": "object-detection" if boxes else "image-classification"}
    metric, first = "mean_average_precision" if boxes else "accuracy", passport.runs[0]
    results = []
    for name, number, mean in (("clean", passport.clean, ""), ("shifted", passport.shifted, "mean over ")):
        if number.value is None:
            continue
        shown = f"{mean}{shift_count(passport)}" if mean else "clean images"
        dataset = {
            "name": f"{first.source}, {shown}",
            "type": "sorites",
            "config": f"{passport.battery.name} {passport.battery.version}",
            "split": name,
        }
        value = {"type": metric, "value": number.value, "name": f"{shown}: {share(number)}"}
        results.append({"task": task, "dataset": dataset, "metrics": [value]})
    return results


def card(passport: Passport) -> str:
    """Return the passport as a section of a model card."""
    weak = "; ".join(title(shift) for shift in passport.weakest)  # titles contain commas
    lines = [
        "## Robustness by degree",
        "",
        (
            f"Measured with Sorites {passport.sorites}, battery {passport.battery.name}"
            f" {passport.battery.version}, on {sources_of(passport)}. Intervals are 95 %."
        ),
        "",
        f"- Clean accuracy: {share(passport.clean)}",
        f"- Accuracy under shift, mean over {shift_count(passport)}: {share(passport.shifted)}",
        *([f"- Weakest dials (greatest mean loss over the severity range): {weak}"] if weak else []),
        *_risks(passport),
        "",
        "| dial | half-accuracy severity | 95 % interval | n |",
        "|---|---|---|--:|",
        *(_line(dial) for dial in passport.dials),
        "",
        f"Model version `{passport.model.version[:16]}`, passport `{passport.hash[:16]}`.",
        "",
    ]
    return "\n".join(lines)


def box_card(passport: BoxPassport) -> str:
    """Return the passport of a detector as a section of a model card."""
    weak = "; ".join(title(shift) for shift in passport.weakest)  # titles contain commas
    knows = passport.knows
    area = next((entry for entry in knows.auroc if entry.images == "shifted"), None) if knows else None
    lines = [
        "## Robustness by degree",
        "",
        (
            f"Measured with Sorites {passport.sorites}, battery {passport.battery.name}"
            f" {passport.battery.version}, on {sources_of(passport)}. Intervals are 95 %. Boxes count from a"
            f" confidence of {passport.conf:g} on, except for mAP."
        ),
        "",
        f"- Clean mAP: {share(passport.clean)}",
        f"- mAP under shift, mean over {shift_count(passport)}: {share(passport.shifted)}",
        f"- Clean recall: {share(passport.recall)}; precision: {share(passport.precision)}",
        *([f"- Weakest dials (most objects lost over the severity range): {weak}"] if weak else []),
        *(
            [f"- AUROC of {knows.scorer}, wrong against right boxes under shift: {area.value:.2f}"]
            if knows and area and area.value is not None
            else []
        ),
        "",
        "| dial | half of the objects lost at | 95 % interval | objects |",
        "|---|---|---|--:|",
        *(_box_line(dial) for dial in passport.dials),
        "",
        f"Model version `{passport.model.version[:16]}`, passport `{passport.hash[:16]}`.",
        "",
    ]
    return "\n".join(lines)


def _box_line(dial: BoxDial) -> str:
    ends = between_words(dial.shift, dial.half.low, dial.half.high)
    return f"| {title(dial.shift)} | {dial.words} | {ends} | {dial.half.objects} |"


def shift_count(passport: AnyPassport) -> str:
    """Return the number of listed shifts, all of which have the same weight in the mean."""
    shifts = len(passport.dials) + len(getattr(passport, "grids", ()))
    return f"{shifts} shift{'s' * (shifts != 1)}"


def sources_of(passport: AnyPassport) -> str:
    """Return what was measured on: "48 samples (24 of stamps, 24 of stamps in surroundings)".

    Parts without a shift have OOD images alone.
    """
    shifted = {entry.part for entry in (*passport.dials, *getattr(passport, "grids", ()))}
    kinds = {run.digest: run for run in passport.runs if run.part in shifted}
    total = several(sum(run.samples for run in kinds.values()), "sample")
    if len(kinds) == 1:
        return f"{total} of {next(iter(kinds.values())).source}"
    return f"{total} ({', '.join(f'{count(run.samples)} of {run.source}' for run in kinds.values())})"


def _risks(passport: Passport) -> list[str]:
    if passport.knows is None or not passport.knows.risk:
        return []
    risks = [f"{share(kept)} error if it answers {100 * kept.coverage:.0f} %" for kept in passport.knows.risk]
    ood = [
        f"{entry.kind} {entry.value:.2f}"
        for entry in passport.knows.auroc
        if entry.scorer == passport.knows.scorer and entry.value is not None
    ]
    return [
        f"- Self-knowledge: {'; '.join(risks)}",
        *(f"- {text[0].upper()}{text[1:]}" for text in alarm_sentences(passport)),
        *([f"- AUROC of the OOD score {passport.knows.scorer}: {', '.join(ood)}"] if ood else []),
    ]


def alarm_sentences(passport: Passport) -> list[str]:
    """Return for each of the weakest shifts how often the model is wrong and would raise an alarm."""
    if passport.knows is None:
        return []
    told = []
    for alarm in passport.knows.alarms:
        if alarm.shift not in passport.weakest or alarm.error.value is None:
            continue
        where = f"{title(alarm.shift)}, {in_words(alarm.shift, alarm.severity)}"
        wrong = f"{where}: it is wrong {share(alarm.error)} of the time"
        caught = f" and would raise the alarm in {share(alarm.caught)} of those"
        told.append(wrong + (caught if alarm.caught.value is not None else ""))
    return told


def share(number: Number) -> str:
    """Format a share with its interval in percent."""
    if number.value is None:
        return "not measured"
    if number.low is None or number.high is None:
        return f"{100 * number.value:.1f} %"
    return f"{100 * number.value:.1f} % ({100 * number.low:.1f} to {100 * number.high:.1f}, n = {number.n})"


def _line(dial: Dial) -> str:
    return f"| {title(dial.shift)} | {dial.words} | {half_interval(dial)} | {dial.half.n} |"
