"""The texts a split is learnt from: labels put into templates, and triplets that change one of the two at a time.

A template is a sentence with ``{}`` where the label goes. Templates of one look stand together in a group: "a sketch of a {}"
and "a pencil drawing of a {}" say the same appearance, so they are never set against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

Looks = Sequence[Sequence[str]]
"""Templates by look."""


@dataclass(frozen=True)
class Triplets:
    """Different texts, and N x 3 places in them: a standard text, one of another meaning, one of another look."""

    texts: tuple[str, ...]
    places: NDArray[np.int64]


def triplets(labels: Sequence[str], looks: Looks, count: int, seed: int = 0) -> Triplets:
    """``count`` random triplets over labels x looks. The text of another meaning keeps the template of the standard one;
    the text of another look keeps its label."""
    if len(set(labels)) < 2 or len(looks) < 2:
        raise SoritesError(f"wanted two or more labels and two or more looks, got {len(set(labels))} and {len(looks)}")
    _templates(looks)
    rng = np.random.default_rng(seed)
    place: dict[str, int] = {}

    def said(template: str, label: str) -> int:
        return place.setdefault(template.replace("{}", label), len(place))

    rows = []
    for _ in range(count):
        label, other = rng.choice(len(labels), 2, replace=False)
        look, unlike = rng.choice(len(looks), 2, replace=False)
        template, differing = (looks[i][int(rng.integers(len(looks[i])))] for i in (look, unlike))
        rows.append((said(template, labels[label]), said(template, labels[other]), said(differing, labels[label])))
    return Triplets(tuple(place), np.array(rows, np.int64).reshape(-1, 3))


def _templates(looks: Looks) -> None:
    for template in (one for look in looks for one in look):
        if template.count("{}") != 1:
            raise SoritesError(f"a template is a sentence with one {{}} where the label goes, got {template!r}")
    if any(not look for look in looks):
        raise SoritesError("a look has no template")


def read_looks(path: str | Path) -> list[list[str]]:
    """A text file with one template a line; an empty line ends a look, and without any each line is a look of its own."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read templates from {path}: {error}") from error
    groups = [[line.strip() for line in part.splitlines() if line.strip()] for part in text.split("\n\n")]
    groups = [group for group in groups if group]
    looks = groups if len(groups) > 1 else [[line] for group in groups for line in group]
    _templates(looks)
    return looks


LOOKS: tuple[tuple[str, ...], ...] = (
    ("a photo of a {}.", "a good photo of a {}.", "a clear picture of a {}."),
    ("a drawing of a {}.", "a sketch of a {}.", "a pencil drawing of a {}."),
    ("a painting of a {}.", "an oil painting of a {}.", "a watercolor of a {}."),
    ("a cartoon of a {}.", "a comic of a {}."),
    ("an embroidery of a {}.", "a {} made of cloth."),
    ("a sculpture of a {}.", "a statue of a {}."),
    ("a toy {}.", "a plastic {}."),
    ("an origami {}.", "a {} made of paper."),
    ("a 3d rendering of a {}.", "a {} in a video game."),
    ("graffiti of a {}.", "a tattoo of a {}."),
    ("a black and white photo of a {}.", "a grayscale picture of a {}."),
    ("a blurry photo of a {}.", "an out of focus picture of a {}."),
    ("a dark photo of a {}.", "a {} at night."),
    ("a bright photo of a {}.", "an overexposed picture of a {}."),
    ("a low resolution photo of a {}.", "a pixelated picture of a {}."),
    ("a jpeg corrupted photo of a {}.", "a noisy picture of a {}."),
    ("a close-up photo of a {}.", "a cropped photo of a {}."),
)
"""Styles, augmentations and light, as the paper takes them for covariates; worded here."""
