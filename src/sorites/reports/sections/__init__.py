"""The sections of the page, one module each: a function of the view that returns a section, or None to stay out.

Importing the room registers them all. A section imports parts, metrics and the view, never another section.
"""

from sorites.registry import import_all

import_all(__name__, __path__)
