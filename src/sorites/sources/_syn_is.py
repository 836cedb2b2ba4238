"""The prompts of Syn-IS: 51 style names of Stable Diffusion XL (IS-OOD, appendix D), each with any labels.

The published images were made from official templates, of which the paper prints one; the wording of ``prompts`` is ours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from importlib.resources import files


@functools.cache
def styles() -> tuple[str, ...]:
    """Return the names of the styles in the paper's order."""
    return tuple(files("sorites.sources").joinpath("syn_is.tsv").read_text(encoding="utf-8").splitlines()[1:])


def prompts(labels: Sequence[str], of: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield label, style and prompt for every pair of the labels with the styles in ``of``, or with all styles."""
    for label in labels:
        for style in of or styles():
            yield label, style, f"{style} style {label}"
