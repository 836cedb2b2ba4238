"""The section on failure points of things: at which severity does a detector lose what it found?"""

from __future__ import annotations

from sorites import metrics
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.failure_cards import failure_cards
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View


@add_section(order=31)
def box_failure(view: View) -> Section | None:
    """Per shift, the share of things that the detector has not yet lost, and between which severities it loses them."""
    if not box_models(view):
        return None
    alive, lost = view.compute(metrics.box_survival), view.compute(metrics.box_failure_histogram)
    lead = (
        "A thing is found where a box of its class overlaps it by IoU 0.5 or more, at any confidence. Its failure point is the "
        "least severity at which it is not found; from there on it counts as lost. Things that are not found when clean are lost "
        "at 0. Things of one picture are lost together, so the 95 % intervals take the picture as the unit."
    )
    return multiples(view, failure_cards(view, alive, lost, "things"), "At which severity are things lost?", "Things lost", lead)
