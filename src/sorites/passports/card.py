"""A passport as Markdown, to be pasted into a model card."""

from __future__ import annotations

from pathlib import Path

from sorites.files import write_bytes
from sorites.passports.document import Dial, Number, Passport
from sorites.passports.words import between_words, title

NAME = "model_card.md"


def write_card(passport: Passport, folder: Path) -> None:
    """Write ``model_card.md``."""
    write_bytes(card(passport).encode(), folder / NAME)


def card(passport: Passport) -> str:
    """Return the passport as a section of a model card."""
    weak = ", ".join(title(shift) for shift in passport.weakest)
    lines = [
        "## Robustness by degree",
        "",
        f"Measured with Sorites {passport.sorites}, battery {passport.battery.name} {passport.battery.version}, on "
        f"{_sources(passport)}. Intervals are 95 %.",
        "",
        f"- Clean accuracy: {share(passport.clean)}",
        f"- Mean accuracy over all dials: {share(passport.shifted)}",
        *([f"- Weakest dials: {weak}"] if weak else []),
        *_risks(passport),
        "",
        "| dial | half of the accuracy is lost at | 95 % interval | n |",
        "|---|---|---|--:|",
        *(_line(dial) for dial in passport.dials),
        "",
        f"Model version `{passport.model.version[:16]}`, passport `{passport.hash[:16]}`.",
        "",
    ]
    return "\n".join(lines)


def _sources(passport: Passport) -> str:
    first = passport.runs[0]
    return f"{first.samples} pictures of `{first.source}`"


def _risks(passport: Passport) -> list[str]:
    if passport.knows is None or not passport.knows.risk:
        return []
    told = [f"{share(kept)} wrong if it answers {100 * kept.coverage:.0f} %" for kept in passport.knows.risk]
    strange = [
        f"{one.kind} {one.value:.2f}"
        for one in passport.knows.auroc
        if one.scorer == passport.knows.scorer and one.value is not None
    ]
    return [
        f"- Does it know: {'; '.join(told)}",
        *([f"- AUROC of {passport.knows.scorer}: {', '.join(strange)}"] if strange else []),
    ]


def share(number: Number) -> str:
    """Return a share with its interval in percent."""
    if number.value is None:
        return "not measured"
    if number.low is None or number.high is None:
        return f"{100 * number.value:.1f} %"
    return f"{100 * number.value:.1f} % ({100 * number.low:.1f} to {100 * number.high:.1f}, n = {number.n})"


def _line(dial: Dial) -> str:
    return f"| {title(dial.shift)} | {dial.words} | {between_words(dial.shift, dial.half.low, dial.half.high)} | {dial.half.n} |"
