"""Image-text models that judge how far an image moved: ``open_clip:NAME@WEIGHTS``,
``python:module:name``, ``cifar``, ``toy``.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
