"""The sections of the page: functions of the view that return a section, or None where the section
does not apply.

Importing the room registers them all. A section imports parts, metrics and the view.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
