"""What the pictures of Syn-IS were asked to look like: 51 style names of Stable Diffusion XL (IS-OOD, appendix D), x any labels.

The published images are made from official templates, of which the paper prints one; the wording of ``prompts`` is ours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from importlib.resources import files


@functools.cache
def styles() -> tuple[str, ...]:
    """The names in the paper's order."""
    return tuple(files("sorites.sources").joinpath("syn_is.tsv").read_text(encoding="utf-8").splitlines()[1:])


def prompts(labels: Sequence[str], of: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Label, style and prompt of every pair of the labels with some styles, or with all."""
    for label in labels:
        for style in of or styles():
            yield label, style, f"{style} style {label}"
