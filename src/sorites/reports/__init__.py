"""Table to one self-contained page.

Importing the room registers the built-in sections; ``add_section`` adds more.
"""

from sorites.registry import import_all
from sorites.reports.page import page
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

import_all(__name__, __path__)

__all__ = ["RunView", "Section", "View", "add_section", "page"]
