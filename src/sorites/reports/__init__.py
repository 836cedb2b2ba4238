"""The report turns tables into one self-contained page.

``sections`` registers the built-in sections, ``parts`` holds what they are made of, ``add_section``
adds one from elsewhere. Nothing here evaluates a model or changes a run folder.
"""

from sorites.reports.page import page
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

__all__ = ["RunView", "Section", "View", "add_section", "page"]
