"""Pictures with words: the attributes that a source holds, or what people answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sorites import core
from sorites.annotation.answers import chosen_answers
from sorites.annotation.heads import Annotated, Words
from sorites.core import CLEAN, Sample
from sorites.errors import SoritesError
from sorites.labels import open_labels
from sorites.pipeline.samples import in_order
from sorites.sources._uncommon import WORDS

QUESTIONS = {"time": "time", "weather": "weather", "locations": "location"}
"""Questions of the task context, and the kinds of attributes that they ask for."""


def samples_of(spec: str) -> list[Sample]:
    """Return the pictures of a source in a fair order, whatever their classes."""
    return list(in_order(core.source(spec, open_labels())))


def annotated(spec: str, answers: Path | None = None) -> list[Annotated]:
    """Return the pictures of a source with their words; those that have none are left out."""
    samples = samples_of(spec)
    told = people_said(answers) if answers is not None else None
    pairs = [(sample, _own(sample) if told is None else told.get(name_of(sample), {})) for sample in samples]
    found = [Annotated(sample.id, sample.load, words) for sample, words in pairs if words]
    if not found:
        where = f"{answers} has no answers for them" if answers else "give --answers FILE of people, or a source that has them"
        raise SoritesError(f"no picture of {spec} has a time, weather or location; {where}")
    return found


def name_of(sample: Sample) -> str:
    """Return the name of a sample's picture in a labelling."""
    return sample.id if sample.shift == CLEAN else f"{sample.id} {sample.shift} {sample.setting.canonical}"


def _own(sample: Sample) -> dict[str, Words]:
    found: dict[str, list[str]] = {}
    for attr in sample.attrs:
        if attr.key in WORDS and attr.value in WORDS[attr.key]:
            found.setdefault(attr.key, []).append(attr.value)
    return {kind: tuple(words) for kind, words in found.items()}


def people_said(answers: Path) -> Mapping[str, dict[str, Words]]:
    """Return the chosen answers to time, weather and locations by picture."""
    found: dict[str, dict[str, Words]] = {}
    for row in chosen_answers(answers).iter_rows(named=True):
        kind = QUESTIONS.get(row["question"])
        if kind:
            value = json.loads(row["value"])
            words: Sequence[str] = value if isinstance(value, list) else [value]
            found.setdefault(row["picture"], {})[kind] = tuple(word for word in words if word in WORDS[kind])
    return found
