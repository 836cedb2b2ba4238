"""The models: ``lite0 lite1 lite2``, ``timm:NAME``, ``open_clip:NAME@WEIGHTS``, ``onnx:PATH``, ``python:module:name`` and
``cifar6``."""

from sorites.models import cifar6 as cifar6
from sorites.models import lite as lite
from sorites.models import onnx as onnx
from sorites.models import open_clip as open_clip
from sorites.models import python as python
from sorites.models import timm as timm
