"""The texts that a decomposition is learnt from: labels put into templates, and triplets that change one of the two at a time.

A template is a sentence with ``{}`` where the label goes. The templates of one style form a group: "a sketch of a {}" and "a
pencil drawing of a {}" name the same appearance, so they are never contrasted with each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.labels import imagenet
from sorites.reading.texts import lines
from sorites.reading.texts import text as read_text

Styles = Sequence[Sequence[str]]
"""Groups of templates, one group per style."""


@dataclass(frozen=True)
class Triplets:
    """Distinct texts, and N x 3 places in them: a standard text, one of another meaning, one of another style."""

    texts: tuple[str, ...]
    places: NDArray[np.int64]


def triplets(labels: Sequence[str], styles: Styles, count: int, seed: int = 0) -> Triplets:
    """Return ``count`` random triplets over labels x styles.

    The text of another meaning keeps the template of the standard text; the text of another style keeps its label.
    """
    if len(set(labels)) < 2 or len(styles) < 2:
        raise SoritesError(f"wanted two or more labels and two or more styles, got {len(set(labels))} and {len(styles)}")
    _check_templates(styles)
    rng = np.random.default_rng(seed)
    places: dict[str, int] = {}

    def place(template: str, label: str) -> int:
        return places.setdefault(template.replace("{}", label), len(places))

    rows = []
    for _ in range(count):
        label, other = rng.choice(len(labels), 2, replace=False)
        style, unlike = rng.choice(len(styles), 2, replace=False)
        template, differing = (styles[i][int(rng.integers(len(styles[i])))] for i in (style, unlike))
        rows.append((place(template, labels[label]), place(template, labels[other]), place(differing, labels[label])))
    return Triplets(tuple(places), np.array(rows, np.int64).reshape(-1, 3))


_QUOTED = re.compile(r"""(?:lambda\s+\w+\s*:\s*)?f?(['"])(.*)\1,?""")
_LIST = re.compile(r"(\w+\s*=\s*)?\[|\],?")
_FIELD = re.compile(r"\{\w*\}")
_WORDNET = re.compile(r"(n\d{8})\b[\s,:]*(.*)")


def _check_templates(styles: Styles) -> None:
    for template in (one for style in styles for one in style):
        if template.count("{}") != 1:
            raise SoritesError(f"a template is a sentence with one {{}} where the label goes, got {template!r}")
    if any(not style for style in styles):
        raise SoritesError("a style has no template")


def read_styles(path: str | Path) -> list[list[str]]:
    """Read a text file with one template per line; an empty line ends a style, and without any each line is its own style.

    The label's place is ``{}`` or has a name (``{c}``, ``{object}``). OpenAI's ``imagenet_templates`` may also stand as the lines
    of its Python list.
    """
    text = read_text(Path(path), "templates, one per line").replace("\r\n", "\n")
    groups = [[_template(line) for line in part.splitlines() if not _ends_list(line)] for part in text.split("\n\n")]
    groups = [group for group in groups if group]
    styles = groups if len(groups) > 1 else [[line] for group in groups for line in group]
    _check_templates(styles)
    return styles


def _ends_list(line: str) -> bool:
    return not line.strip() or _LIST.fullmatch(line.strip()) is not None


def _template(line: str) -> str:
    quoted = _QUOTED.fullmatch(line.strip())
    text = quoted[2] if quoted else line.strip()
    return _FIELD.sub("{}", text) if len(_FIELD.findall(text)) == 1 else text


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read class names to make texts of, one class per line, as ImageNet-21K's lists have them.

    A WordNet id before the name is dropped, of several synonyms (commas between) the first is taken, an underscore is a space,
    and a name that stands twice is taken once: WordNet has a crane that flies and one that lifts. An id alone is one of
    ImageNet's thousand classes.
    """
    every = lines(Path(path), "labels as UTF-8 text with one class name per line")
    names = [_name(line.strip(), f"{path}, line {i}") for i, line in enumerate(every, 1) if line.strip()]
    return tuple({name.lower(): name for name in reversed(names)}.values())[::-1]


def _name(line: str, where: str) -> str:
    found = _WORDNET.fullmatch(line)
    if found and not found[2]:
        known = dict(zip(imagenet().ids, imagenet().names, strict=True))
        if found[1] not in known:
            raise SoritesError(f"{where}: {found[1]} is not one of ImageNet's thousand classes; wanted its name, or id and name")
        return known[found[1]]
    return (found[2] if found else line).split(",")[0].strip().replace("_", " ")


STYLES: tuple[tuple[str, ...], ...] = (
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
"""The styles used where none are given: media, augmentations and light, as the paper takes them for covariates; our wording."""
