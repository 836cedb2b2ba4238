"""Adversarial attacks: small changes of images, optimized against one model, that cause misclassification."""

from sorites.training.attack.run import attack

__all__ = ["attack"]
