"""The section on failure points: survival curves, and the distribution of failure points over severity."""

from __future__ import annotations

from sorites import metrics
from sorites.reports.parts.failure_cards import failure_cards
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View


@add_section(order=30)
def failure(view: View) -> Section | None:
    """Per shift, the share of pictures that the model has not yet failed on, and between which severities it fails."""
    alive, lost = view.compute(metrics.survival), view.compute(metrics.failure_histogram)
    cards = failure_cards(view, alive, lost, "pictures")
    lead = (
        "The failure point of a picture is the least severity at which the model is wrong about it; from there on it counts as "
        "lost. Pictures that are wrong when clean are lost at 0; pictures that are right at every severity survive."
    )
    return multiples(view, cards, "At which severity does the model fail?", "Failure points", lead)
