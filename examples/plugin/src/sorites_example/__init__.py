"""Importing the package registers what is in it; the entry point names the package and nothing else is needed."""

from sorites_example import measure, metric, model, shift, source

__all__ = ["measure", "metric", "model", "shift", "source"]
