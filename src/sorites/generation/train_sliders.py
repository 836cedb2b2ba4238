"""Train sliders for classes and shifts into a folder, each resumable, each with a strip of what it learnt."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sorites.diffusion import sliders
from sorites.diffusion.pipeline import TOY, Pipe, toy_folder
from sorites.diffusion.requests import Drawing, along
from sorites.diffusion.sampler import sample
from sorites.diffusion.shelf import Concept
from sorites.diffusion.sliders import FACTS, Slider, save
from sorites.errors import SoritesError
from sorites.files import locked, sweep_temporaries, write_bytes
from sorites.generation.concepts import shift_folder
from sorites.generation.recipe import SliderRecipe
from sorites.generation.training import UNFINISHED, trained
from sorites.progress import Bar
from sorites.reading.texts import json_file
from sorites.types import Picture, to_picture

Sheet = Callable[[Sequence[Sequence[tuple[Picture, str]]], str], Any]
"""Draws rows of pictures with captions under a title, and returns a Pillow picture."""
LIBRARIES = ("torch", "diffusers", "transformers")
SHOWN = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
PROMPT = "a picture of a {class}"
LEAST = 96
"""The least width in px at which a picture of a strip is shown."""


def train_sliders(
    pipe: Pipe, concepts: Sequence[Concept], shifts: Sequence[str], recipe: SliderRecipe, out: Path,
    drawing: Drawing | None = None, draw: Sheet | None = None, bar: Bar | None = None,
) -> list[Path]:  # fmt: skip
    """Train one slider per class and shift and return their folders; those that are finished are left as they are."""
    wanted = [(concept, words, out / shift_folder(words) / concept.folder) for words in shifts for concept in concepts]
    if not wanted:
        raise SoritesError("wanted one or more classes and one or more shifts")
    with locked(out, "slider", ".sorites.lock"):
        sweep_temporaries(out)
        for concept, words, folder in wanted:
            if not _finished(folder, pipe, recipe):
                tick = bar(f"{words}, {concept.name}"[:28], recipe.steps) if bar else (lambda _: None)
                slider = trained(pipe, pipe.word(concept.name), words, recipe, folder / UNFINISHED, tick)
                save(_described(slider, concept, pipe, drawing or Drawing()), folder)
                (folder / UNFINISHED).unlink(missing_ok=True)
            if draw is not None and not (folder / "strip.png").exists():
                _strip(pipe, folder, concept, drawing or Drawing(), draw)
    return [folder for _, _, folder in wanted]


def _finished(folder: Path, pipe: Pipe, recipe: SliderRecipe) -> bool:
    """Return whether a slider is there; one that was trained otherwise is refused, naming what differs."""
    if not (folder / FACTS).is_file():
        return False
    facts = json_file(folder / FACTS, "the facts of a slider")
    had = facts.get("recipe", {}) if isinstance(facts, dict) else {}
    now = {**recipe.facts(), "pipeline_version": pipe.version}
    before = {**had, "pipeline_version": facts.get("pipeline_version")} if isinstance(facts, dict) else {}
    differs = [key for key in now if before.get(key) != now[key]]
    if differs:
        key = differs[0]
        raise SoritesError(
            f"{folder} holds a slider that was trained with {key} {before.get(key)!r}, not {now[key]!r}; choose another --out DIR"
        )
    return True


def _described(slider: Slider, concept: Concept, pipe: Pipe, drawing: Drawing) -> Slider:
    where = TOY if pipe.path == toy_folder().resolve() else str(pipe.path)
    libraries = {name: version(name) for name in LIBRARIES}
    more = {
        "class": concept.name, "number": concept.number, "pipeline": where, "pipeline_version": pipe.version,
        "drawing": dict(drawing.facts()), "libraries": libraries,
    }  # fmt: skip
    return Slider(slider.shift, slider.lows, {**slider.facts, **more}, slider.version)


def _strip(pipe: Pipe, folder: Path, concept: Concept, drawing: Drawing, draw: Sheet) -> None:
    slider = sliders.load(folder, pipe.parts.unet)
    prompt, noise = (PROMPT.replace("{class}", name) for name in (pipe.word(concept.name), concept.name))
    found = sample(pipe, [along(prompt, seed, slider, SHOWN, noise) for seed in (1, 2)], drawing)
    rows = [[(enlarged(to_picture(image)), f"{s:g}") for image, s in zip(row, SHOWN, strict=True)] for row in found]
    write_bytes(as_png(draw(rows, f"{concept.name}, {slider.shift} (severity)")), folder / "strip.png")


def enlarged(picture: Picture) -> Picture:
    """Return a small picture with each pixel as a larger square, so that it can be seen."""
    times = max(1, -(-LEAST // picture.shape[0]))
    return np.repeat(np.repeat(picture, times, 0), times, 1)


def as_png(page: Any) -> bytes:
    """Return a Pillow picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    page.save(buffer, format="PNG")
    return buffer.getvalue()
