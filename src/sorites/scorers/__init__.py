"""Scorers turn a model's outputs into strangeness: how unlike its training pictures does the model find this one?

They are the OOD detectors of the field. A larger score is stranger. Helpers start with an underscore; no scorer reads the table.
"""

from sorites.scorers import directions as directions
from sorites.scorers import gaussians as gaussians
from sorites.scorers import gradients as gradients
from sorites.scorers import gram as gram
from sorites.scorers import logits as logits
from sorites.scorers import maps as maps
from sorites.scorers import neighbours as neighbours
from sorites.scorers import shaping as shaping
