"""Attributes by a referee: the softmax of a picture's likeness to given texts, one text per word.

CNS-Bench splits OOD-CV's weather into rain, snow, fog and unknown in this way (Dünkel et al., ICCV 2025, on OOD-CV). A file of
texts is TOML: a table per kind with a text per word, in which {class} stands for the picture's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites import core
from sorites.core import Features, Picture, Referee
from sorites.errors import BadPicture, SoritesError, UnknownName
from sorites.reading.places import path_of
from sorites.reading.texts import toml_file
from sorites.sources._uncommon import WORDS

PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "weather": {
        "raining": "a picture of a {class} in rain",
        "snowing": "a picture of a {class} in snow",
        "foggy": "a picture of a {class} in fog",
        "none": "a picture of a {class} without snow nor fog nor rain",
    }
}
"""The texts of CNS-Bench for OOD-CV, with our words for its rain, snow, fog and unknown."""

SCALE = 100.0
"""The factor for cosines before the softmax: CLIP's own scale."""

UNNAMED = "thing"
"""The word for a class that is not known."""


@dataclass(frozen=True, eq=False)
class ReferenceTexts:
    """A referee with the texts of each kind's words."""

    referee: Referee
    spec: str
    texts: Mapping[str, Mapping[str, str]]
    scale: float = SCALE

    @property
    def record(self) -> dict[str, Any]:
        """Return what the attributes follow from."""
        return {"referee": self.spec, "version": self.referee.version, "scale": self.scale, "texts": dict(self.texts)}

    def told(
        self, asked: Sequence[tuple[Callable[[], Picture], str | None]], tick: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, list[tuple[str, float]]]]]:
        """Yield the place of each picture that can be read, with the likeliest word of each kind and its share."""
        encoded: dict[tuple[str, str], Features] = {}
        for at, (load, class_) in enumerate(asked):
            tick(1)
            try:
                picture = load()
            except BadPicture:
                continue
            seen = _unit(self.referee.images([picture], False))
            yield at, {kind: [self._best(seen, kind, class_ or UNNAMED, encoded)] for kind in self.texts}

    def _best(self, seen: Features, kind: str, class_: str, encoded: dict[tuple[str, str], Features]) -> tuple[str, float]:
        if (kind, class_) not in encoded:
            sentences = [text.replace("{class}", class_) for text in self.texts[kind].values()]
            encoded[kind, class_] = _unit(self.referee.texts(sentences))
        likeness = self.scale * (seen @ encoded[kind, class_].T)[0].astype(np.float64)
        raised = np.exp(likeness - likeness.max())
        shares = raised / raised.sum()
        best = int(shares.argmax())
        return list(self.texts[kind])[best], float(shares[best])


def reference_texts(referee: str, file: str | None = None, scale: float = SCALE) -> ReferenceTexts:
    """Return a referee by name with the texts of a file, or those published for weather."""
    return ReferenceTexts(core.referee(referee), referee, read_texts(file) if file else PUBLISHED, scale)


def read_texts(file: str) -> dict[str, dict[str, str]]:
    """Return the texts of a TOML file, whose kinds and words are those of attributes."""
    found = toml_file(path_of(file), "a table of texts per kind, such as [weather]")
    for kind, texts in found.items():
        if kind not in WORDS:
            raise UnknownName("kind of attribute", kind, WORDS, f"{file} has it; it is one of {', '.join(WORDS)}.")
        if not isinstance(texts, dict) or len(texts) < 2 or not all(isinstance(t, str) and t.strip() for t in texts.values()):
            raise SoritesError(f'{file}: wanted two texts or more below [{kind}], such as night = "a {{class}} at night"')
        for word in texts:
            if word not in WORDS[kind]:
                raise UnknownName(kind, word, WORDS[kind], f"{file} has it; it is one of {', '.join(WORDS[kind])}.")
    if not found:
        raise SoritesError(f"{file}: wanted a table of texts per kind, such as [weather]; got none")
    return found


def _unit(features: Features) -> Features:
    return np.asarray(features / np.clip(np.linalg.norm(features, axis=1, keepdims=True), 1e-12, None))
