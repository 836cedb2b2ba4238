"""The sections of the page: functions of the view that return a section, or None if it does not apply.

Importing this package registers all of them. A section imports components, metrics and the view.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
