"""Models: ``lite0 lite1 lite2``, ``timm:NAME``, ``hf:DIR``, ``open_clip:NAME@WEIGHTS``, ``onnx:PATH``,
``python:module:name``, ``cifar6``, ``trained:DIR``, ``diffusion:DIR``, ``toy``; and the detectors
``boxes:PATH``, ``picodet``, ``torchvision:NAME@WEIGHTS`` and ``crops:ENCODER,DETECTOR``.
"""

from sorites.core.registry import import_all

import_all(__name__, __path__)
