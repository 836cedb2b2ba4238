"""Use your own code as a source: ``python:module:name``, from an installed module or the current folder.

``name`` is a function ``(path, labels)`` that yields samples, as for ``add_source`` (``path`` is None), a
``Source``, or a list of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sorites.core import Sample, Source, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.registry import load_object


@add_source
def python(path: str | None, labels: Labels) -> Iterable[Sample]:
    """Read samples from your own code (python:module:name): a function (path, labels), a Source or a list."""
    obj = load_object("source", path)
    if isinstance(obj, Source):
        return obj.samples
    if isinstance(obj, Sequence) and all(isinstance(item, Sample) for item in obj):
        return obj
    if not callable(obj):
        raise SoritesError(
            f"source python:{path}: expected a function (path, labels), a Source or a list of samples, got a"
            f" {type(obj).__name__}"
        )
    samples: Iterable[Sample] = obj(None, labels)
    return samples
