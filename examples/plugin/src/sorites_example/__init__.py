"""Importing the package registers what is in it; the entry point names the package and nothing else is needed."""

from sorites_example import metric, model, shift, source

__all__ = ["metric", "model", "shift", "source"]
