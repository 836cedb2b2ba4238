"""OOD scorers, which turn a model's outputs into OOD scores (higher = more OOD)."""

from sorites.core.registry import import_all

import_all(__name__, __path__)
