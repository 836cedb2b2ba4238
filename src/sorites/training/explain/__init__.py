"""Explain predictions: Grad-CAM, RISE and occlusion, and explanations of a run's flipped images."""

from sorites.training.explain.gradcam import grad_cam, guided_backprop, guided_grad_cam
from sorites.training.explain.masking import class_score, deletion, insertion, object_score, occlusion, rise
from sorites.training.explain.run import explain

__all__ = [
    "class_score",
    "deletion",
    "explain",
    "grad_cam",
    "guided_backprop",
    "guided_grad_cam",
    "insertion",
    "object_score",
    "occlusion",
    "rise",
]
