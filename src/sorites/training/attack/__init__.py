"""Attacks on models: the smallest change of an image, chosen against one model, that makes it wrong."""

from sorites.training.attack.run import attack

__all__ = ["attack"]
