"""Encoders: image-text models that measure how far an image moved, such as ``open_clip:NAME@WEIGHTS`` or
``cifar``.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
