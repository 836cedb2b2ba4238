"""Scorers turn a model's outputs into strangeness: how unlike its training pictures does the model
find this one?

They are the OOD detectors of the field. A larger score is stranger. Helpers start with an
underscore; no scorer reads the table.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
