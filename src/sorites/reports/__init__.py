"""Turn tables into one self-contained HTML page.

``sections`` registers the built-in sections, ``components`` holds their building blocks, and ``add_section``
adds a section from elsewhere. Nothing here evaluates a model or changes a run folder.
"""

from sorites.reports.page import page
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

__all__ = ["RunView", "Section", "View", "add_section", "page"]
