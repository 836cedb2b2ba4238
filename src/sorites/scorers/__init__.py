"""Scorers turn a model's outputs into OOD score: how unlike its training images does the model
find this one?

They are the OOD detectors of the field. A larger score is more OOD. Helpers start with an
underscore; no scorer reads the table.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
