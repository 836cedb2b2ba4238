"""The sources: one reader per dataset.

Each yields samples whose images are decoded when they are asked for.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
