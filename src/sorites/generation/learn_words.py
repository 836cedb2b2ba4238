"""Learn the words of classes from a source of pictures into a folder, each resumable (IN* of CNS-Bench)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from sorites.core import Sample
from sorites.diffusion.pipeline import TOY, Pipe, toy_folder
from sorites.diffusion.shelf import Concept
from sorites.diffusion.words import FACTS, Word, save
from sorites.errors import SoritesError
from sorites.files import locked, sweep_temporaries
from sorites.generation.train_sliders import LIBRARIES
from sorites.generation.word_recipe import WordRecipe
from sorites.generation.word_training import learnt
from sorites.models._preprocess import fit
from sorites.pipeline.left_out import LeftOut, readable
from sorites.progress import Bar
from sorites.reading.texts import json_file
from sorites.rng import fair_order
from sorites.types import Picture

UNFINISHED = "learning.safetensors"


def learn_words(
    pipe: Pipe, concepts: Sequence[Concept], source: Sequence[Sample], names: Sequence[str], recipe: WordRecipe, out: Path,
    limit: int | None = None, bar: Bar | None = None,
) -> list[Path]:  # fmt: skip
    """Learn one word per class and return their folders; ``names`` are the labels of the source, by place.

    Those that are finished are left as they are.
    """
    if not concepts:
        raise SoritesError("wanted one or more classes")
    with locked(out, "word", ".sorites.lock"):
        sweep_temporaries(out)
        for concept in concepts:
            folder = out / concept.folder
            if _finished(folder, pipe, recipe):
                continue
            mine = fair_order([one for one in source if one.label == names.index(concept.name)], lambda one: [one.id])[:limit]
            pictures = _pictures(pipe, mine, concept.name)
            tick = bar(concept.name[:28], recipe.steps) if bar else (lambda _: None)
            word = learnt(pipe, concept.name, pictures, recipe, folder / UNFINISHED, tick)
            save(_described(word, concept, pipe), folder)
            (folder / UNFINISHED).unlink(missing_ok=True)
    return [out / concept.folder for concept in concepts]


def _pictures(pipe: Pipe, samples: Sequence[Sample], name: str) -> list[Picture]:
    left = LeftOut("pictures of a class")
    found = [fit(picture, sample.framed, (pipe.side, pipe.side), 1.0) for sample, picture in readable(samples, left)]
    if not found:
        raise SoritesError(f"the source has no picture of the class {name}. Wanted class folders that are named like the classes")
    return [np.ascontiguousarray(picture) for picture in found]


def _finished(folder: Path, pipe: Pipe, recipe: WordRecipe) -> bool:
    """Return whether a word is there; one that was learnt otherwise is refused, naming what differs."""
    if not (folder / FACTS).is_file():
        return False
    facts = json_file(folder / FACTS, "the facts of a word")
    had = facts if isinstance(facts, dict) else {}
    before = {**had.get("recipe", {}), "pipeline_version": had.get("pipeline_version")}
    now = {**recipe.facts(), "pipeline_version": pipe.version}
    for key in (key for key in now if before.get(key) != now[key]):
        raise SoritesError(
            f"{folder} holds a word that was learnt with {key} {before.get(key)!r}, not {now[key]!r}; choose another --out DIR"
        )
    return True


def _described(word: Word, concept: Concept, pipe: Pipe) -> Word:
    where = TOY if pipe.path == toy_folder().resolve() else str(pipe.path)
    libraries = {name: version(name) for name in LIBRARIES}
    more = {"number": concept.number, "pipeline": where, "pipeline_version": pipe.version, "libraries": libraries}
    return Word(word.name, word.vectors, {**word.facts, **more})
