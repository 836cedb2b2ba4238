"""Pictures in, logits and features out: ``lite0 lite1 lite2``, ``timm:NAME``, ``onnx:PATH``, ``python:module:callable``."""

from sorites.models import lite as lite
