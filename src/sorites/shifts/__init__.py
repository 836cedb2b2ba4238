"""What severity means: one dial a way the world can shift, by family."""

from sorites.registry import import_all

import_all(__name__, __path__)
