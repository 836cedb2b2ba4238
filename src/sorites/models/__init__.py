"""The models: ``lite0 lite1 lite2``, ``timm:NAME``, ``open_clip:NAME@WEIGHTS``, ``onnx:PATH``, ``python:module:name``,
``cifar6``, ``trained:DIR``, ``diffusion:DIR``, ``toy``; and the detectors ``boxes:PATH``, ``picodet`` and
``torchvision:NAME@WEIGHTS``."""

from sorites.models import boxes as boxes
from sorites.models import cifar6 as cifar6
from sorites.models import diffusion as diffusion
from sorites.models import lite as lite
from sorites.models import onnx as onnx
from sorites.models import open_clip as open_clip
from sorites.models import picodet as picodet
from sorites.models import python as python
from sorites.models import timm as timm
from sorites.models import torchvision as torchvision
from sorites.models import toy as toy
from sorites.models import trained as trained
