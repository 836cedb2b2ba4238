"""The shifts, by family: each module registers one or more ways to move an image, and says what
severity means there.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
