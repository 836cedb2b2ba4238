"""Shifts, one module per family; each shift defines the meaning of its severity."""

from sorites.core.registry import import_all

import_all(__name__, __path__)
