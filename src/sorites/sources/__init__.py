"""Sources: one reader per dataset, each returning samples whose images are decoded lazily."""

from sorites.core.registry import import_all

import_all(__name__, __path__)
