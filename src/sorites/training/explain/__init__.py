"""Explain predictions: Grad-CAM, guided Grad-CAM, and explanations of a run's flipped images."""

from sorites.training.explain.gradcam import grad_cam, guided_backprop, guided_grad_cam
from sorites.training.explain.run import explain

__all__ = ["explain", "grad_cam", "guided_backprop", "guided_grad_cam"]
