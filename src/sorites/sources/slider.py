"""Images that a diffusion model draws while a run asks for them: samples are a class and a seed,
with sliders as their dials.

    slider:DIR            the folder of "sorites generate sliders --out DIR"; slider:toy are the embedded ones
    ?seeds=6              seeds 1 to 6 of every class
    ?severities=0.5,1     the published settings; others can be asked for as with any dial
    ?pipeline=DIR         the pipeline, where it no longer lies where the sliders were trained
    ?words=DIR            learnt words of "sorites generate words"
    ?steps=50&guidance=7.5&start=750&size=256&negative=...      how images are drawn; as recorded
        with the sliders by default

What is drawn is kept in the user's cache, under the hash of everything it follows from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sorites.core import ImageF32, ImageU8, OwnDial, Sample, add_source, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, imagenet
from sorites.core.rng import digest
from sorites.core.specs import split_options
from sorites.diffusion.pipeline import TOY, Pipe, load
from sorites.diffusion.sampler import Drawing, Request, along, drawing_from
from sorites.diffusion.sliders import Concept, Shelf, Slider, shelf
from sorites.diffusion.words import with_words
from sorites.io.files import cache, note_damage, write_bytes
from sorites.io.readers import numbers, whole
from sorites.sources.decode import decode

SEVERITIES = (0.5, 1.0, 1.5, 2.0, 2.5)
SEEDS = 6
VERSION = 1
OPTIONS = (
    "seeds",
    "severities",
    "pipeline",
    "prompt",
    "steps",
    "guidance",
    "start",
    "size",
    "side",
    "negative",
    "words",
)
PROMPT = "a picture of a {class}"


@add_source
def slider(path: str | None, labels: Labels) -> list[Sample]:
    """Draw classes on a diffusion model (slider:DIR, slider:toy), with one dial per slider;
    images are made when asked for.
    """
    where, options = split_options("slider", path or TOY, dict.fromkeys(OPTIONS, ()))
    sliders = shelf(where)
    drawing = drawing_from(sliders.facts, **_drawing(options))
    pipe = load(options.get("pipeline") or str(sliders.facts.get("pipeline", "")))
    if "words" in options:
        pipe = with_words(pipe, options["words"])
    settings = (
        tuple(sorted(s for s in numbers(options["severities"], "slider: severities") if s))
        if "severities" in options
        else SEVERITIES
    )
    seeds = whole(options.get("seeds", str(SEEDS)))
    if not seeds or seeds > 100_000:
        raise SoritesError(f"slider: wanted seeds as a number from 1 up, got {options.get('seeds')!r}")
    world = World(pipe, sliders, drawing, options.get("prompt", PROMPT))
    return [
        world.sample(concept, seed, settings, _label(concept, labels, where))
        for concept in sliders.concepts
        for seed in range(1, seeds + 1)
    ]


def _drawing(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"negative": options.get("negative")}
    for name in ("steps", "start", "size", "side"):
        if name in options:
            found[name] = whole(options[name])
            if found[name] is None:
                raise SoritesError(f"slider: wanted {name} as a whole number, got {options[name]!r}")
    if "guidance" in options:
        found["guidance"] = numbers(options["guidance"], "slider: guidance")[0]
    return found


def _label(concept: Concept, labels: Labels, where: str) -> int:
    ids = imagenet().ids
    known = labels.get(concept.name, *(ids[concept.number : concept.number + 1]))
    if known is None:
        raise SoritesError(
            f"slider:{where}: the class {concept.name} is not among the labels. Name them: --labels FILE"
        )
    return known


@dataclass(frozen=True, eq=False)
class World:
    """A pipeline with its sliders and how it draws."""

    pipe: Pipe
    sliders: Shelf
    drawing: Drawing
    prompt: str

    def sample(self, concept: Concept, seed: int, settings: tuple[float, ...], label: int) -> Sample:
        """Return the sample of a class and a seed."""
        shifts = [shift for shift in self.sliders.shifts if (shift, concept) in self.sliders.places]
        dials = tuple(
            OwnDial(
                shift, settings, functools.partial(self.sweep, concept=concept, seed=seed, shift=shift), "scale",
                version=self.version(shift), about=f"{shift.replace('_', ' ')}, drawn by a diffusion model with a slider",
            )
            for shift in shifts
        )  # fmt: skip
        load_ = functools.partial(self.clean, concept=concept, seed=seed)
        return Sample(f"{concept.folder}/seed_{seed:04d}", load_, label, dials=dials)

    def version(self, shift: str) -> str:
        """Return a hash of all that the images of a shift follow from beside class, seed and severity."""
        return _shift_version(self, shift)

    def clean(self, concept: Concept, seed: int) -> ImageU8:
        """Return the image of a class and a seed without any slider."""
        file = self._file(concept, seed, "", 0.0)
        kept = _kept(file)
        if kept is None:
            from sorites.diffusion.sampler import sample

            kept = to_uint8(
                sample(
                    self.pipe, [Request(self._words(concept), seed, noise=self._noise(concept))], self.drawing
                )[0][0]
            )
            write_bytes(_png(kept), file)
        return kept

    def sweep(
        self, severities: Sequence[float], concept: Concept, seed: int, shift: str
    ) -> Iterator[ImageF32]:
        """Yield the images of a class and a seed along a slider; those that are not kept yet are
        drawn together.
        """
        from sorites.diffusion.sampler import sample

        places = [self._file(concept, seed, shift, severity) for severity in severities]
        found = {file: kept for file in places if (kept := _kept(file)) is not None}
        missing = {file: float(s) for file, s in zip(places, severities, strict=True) if file not in found}
        if missing:
            request = along(
                self._words(concept),
                seed,
                self._slider(shift, concept),
                tuple(missing.values()),
                self._noise(concept),
            )
            for file, image in zip(missing, sample(self.pipe, [request], self.drawing)[0], strict=True):
                found[file] = to_uint8(image)
                write_bytes(_png(found[file]), file)
        yield from (to_float(found[file]) for file in places)

    def _words(self, concept: Concept) -> str:
        return self.prompt.replace("{class}", self.pipe.word(concept.name))

    def _noise(self, concept: Concept) -> str:
        """Return what the noise follows from: the plain words, so that a learnt word is drawn from
        the same noise.
        """
        return self.prompt.replace("{class}", concept.name)

    def _slider(self, shift: str, concept: Concept) -> Slider:
        return self.sliders.slider(self.pipe, shift, concept)

    def _file(self, concept: Concept, seed: int, shift: str, severity: float) -> Path:
        made = self._slider(shift, concept).version if shift else ""
        key = digest(_base(self), made, self._words(concept), seed, float(severity)).hex()
        return cache("slider", key[:2], f"{key}.png")


@functools.lru_cache(maxsize=16)
def _base(world: World) -> str:
    libraries = [version(name) for name in ("torch", "diffusers", "transformers")]
    return digest(VERSION, world.pipe.version, sorted(world.drawing.facts().items()), libraries).hex()


@functools.lru_cache(maxsize=256)
def _shift_version(world: World, shift: str) -> str:
    made = [
        (str(one), world.sliders.slider(world.pipe, shift, one).version)
        for name, one in world.sliders.places
        if name == shift
    ]
    return digest(_base(world), world.prompt, made, size=8).hex()


def _kept(file: Path) -> ImageU8 | None:
    """Return a kept image, or None where there is none or it is damaged."""
    if not file.is_file():
        return None
    try:
        return decode(file)
    except SoritesError as error:
        note_damage(file, error)
        return None


def _png(image: ImageU8) -> bytes:
    import io

    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()
