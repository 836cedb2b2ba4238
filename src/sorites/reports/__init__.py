"""Table to one self-contained page.

Importing the room registers the built-in sections; ``add_section`` adds more.
"""

from sorites.reports import (
    abstain,
    agreement,
    calibration,
    contact,
    corruption,
    curves,
    degrees,
    exposure,
    failure,
    headline,
    histograms,
    mistakes,
    numbers,
    ranks,
    strangeness,
    strips,
)
from sorites.reports.page import page
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

__all__ = ["RunView", "Section", "View", "add_section", "page"]
__all__ += [
    "abstain",
    "calibration",
    "contact",
    "corruption",
    "curves",
    "degrees",
    "exposure",
    "failure",
    "headline",
    "histograms",
    "mistakes",
]
__all__ += ["numbers", "ranks", "strangeness", "strips"]
