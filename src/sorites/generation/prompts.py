"""Prompts of Syn-IS: every label in every style, checked against a list of words that are not drawn.

The paper names 51 styles of Stable Diffusion XL (IS-OOD, appendix D) and prints one template; the wording of ours is our own. A
file of the usual form (name, prompt, negative_prompt, as JSON or as a table) takes its place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.reading.frames import csv
from sorites.reading.texts import json_file, lines

PLACES = ("{label}", "{prompt}", "{object}", "{}")
"""The placeholders for a label in a template; files of others use one of these."""
WANTED = (
    "styles as JSON [{name, prompt, negative_prompt}, ...] or as a table with these columns; prompt has {prompt} for the label"
)


@dataclass(frozen=True)
class Style:
    """A style: its name, its template, and what pictures in it are steered away from."""

    name: str
    prompt: str
    negative: str = ""

    def told(self, label: str) -> str:
        """Return the prompt of a label in this style."""
        place = next(place for place in PLACES if place in self.prompt)
        return self.prompt.replace(place, label)


@functools.cache
def published() -> tuple[Style, ...]:
    """Return the 51 named styles with our wording."""
    rows = files("sorites.generation").joinpath("styles.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return tuple(Style(*row.split("\t")) for row in rows)


def styles(file: str | Path | None = None) -> tuple[Style, ...]:
    """Return the styles of a file, or the named ones."""
    if file is None:
        return published()
    path = Path(file)
    rows = json_file(path, WANTED) if path.suffix == ".json" else _table(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SoritesError(f"{path}: wanted {WANTED}")
    found = []
    for row in rows:
        name, prompt, negative = (str(row.get(key) or "") for key in ("name", "prompt", "negative_prompt"))
        if not name or sum(prompt.count(place) for place in PLACES) != 1:
            raise SoritesError(f"{path}: the style {name[:40]!r} has no prompt with one place for the label. Wanted {WANTED}")
        found.append(Style(name, prompt, negative))
    if not found or len({style.name for style in found}) < len(found):
        raise SoritesError(f"{path}: wanted one or more styles with different names, got {len(found)}")
    return tuple(found)


def _table(path: Path) -> list[dict[str, object]]:
    frame = csv(path, WANTED, separator="\t" if path.suffix == ".tsv" else ",")
    return list(frame.iter_rows(named=True))


def labels_of(file: Path) -> list[str]:
    """Return the labels of a file, one per line, each once."""
    return list(dict.fromkeys(filter(None, (line.strip() for line in lines(file, "--labels, one label per line")))))


def blocked_words(file: Path | None = None) -> tuple[str, ...]:
    """Return the words that no prompt may hold: a short list of ours, and those of a file, one per line."""
    ours = files("sorites.generation").joinpath("blocked.txt").read_text(encoding="utf-8").splitlines()
    more = [] if file is None else [line.strip().lower() for line in lines(file, "--block, one word per line")]
    return tuple(dict.fromkeys(filter(None, [*ours, *more])))


@dataclass(frozen=True)
class Prompts:
    """Labels x styles without those that a list blocks: prompt ``i`` is label ``pairs[i, 0]`` in style ``pairs[i, 1]``."""

    labels: tuple[str, ...]
    styles: tuple[Style, ...]
    pairs: NDArray[np.int64]
    blocked: int

    def __len__(self) -> int:
        return len(self.pairs)

    def text(self, place: int) -> str:
        """Return one prompt."""
        label, style = (int(number) for number in self.pairs[place])
        return self.styles[style].told(self.labels[label])


def planned(
    labels: Sequence[str], of: Sequence[Style], blocked: Sequence[str], most: int | None = None, seed: int = 0
) -> Prompts:
    """Pair labels with styles; a label or a template with a blocked word is left out. ``most`` keeps some pairs, drawn evenly."""
    if not labels:
        raise SoritesError("wanted one or more labels")
    rule = re.compile(rf"\b({'|'.join(map(re.escape, blocked))})\b", re.IGNORECASE) if blocked else None
    clean = [i for i, label in enumerate(labels) if not (rule and rule.search(label))]
    fine = [j for j, style in enumerate(of) if not (rule and rule.search(style.prompt))]
    if not clean or not fine:
        raise SoritesError("the list of blocked words leaves no prompt")
    pairs = np.stack(np.meshgrid(clean, fine, indexing="ij"), -1).reshape(-1, 2).astype(np.int64)
    out = len(labels) * len(of) - len(pairs)
    if most is not None and most < len(pairs):
        pairs = pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:most])]
    return Prompts(tuple(labels), tuple(of), pairs, out)
