"""Explain why a model answers as it does: Grad-CAM and guided Grad-CAM, and the images of a run
that flipped.
"""

from sorites.training.explain.maps import grad_cam, guided_backprop, guided_grad_cam
from sorites.training.explain.run import explain

__all__ = ["explain", "grad_cam", "guided_backprop", "guided_grad_cam"]
