"""Importing this package registers its plug-ins.

The entry point names the package, and nothing else is needed.
"""

from sorites_example import measure, metric, model, shift, source

__all__ = ["measure", "metric", "model", "shift", "source"]
