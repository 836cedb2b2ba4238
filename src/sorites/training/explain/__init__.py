"""Explain why a model answers as it does: Grad-CAM and guided Grad-CAM, and the pictures of a run
that changed sides.
"""

from sorites.training.explain.maps import grad_cam, guided_backprop, guided_grad_cam
from sorites.training.explain.run import explain

__all__ = ["explain", "grad_cam", "guided_backprop", "guided_grad_cam"]
