"""Images drawn on demand by a diffusion model: a sample is a class and a seed, its shifts are sliders.

    slider:DIR            a folder made by "sorites generate sliders", or released sliders (a folder or .zip);
                          slider:toy is the embedded one
    ?seeds=6              seeds 1 to 6 of every class
    ?severities=0.5,1     the default severities of the shifts; others can be requested as for any shift
    ?pipeline=DIR         the pipeline, if it was moved since the sliders were trained
    ?words=DIR            learnt words of "sorites generate words", or a released text encoder
    ?scheduler=own&seeding=plain     the scheduler, and noise from the class and seed or from the seed alone
    ?steps=50&guidance=7.5&start=750&size=256&negative=...      sampling options; default: as recorded
        with the sliders

Drawn images are cached under the hash of everything they depend on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sorites.core import Generated, ImageF32, ImageU8, OwnDial, Sample, add_source, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, imagenet
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.core.specs import split_options
from sorites.diffusion.pipeline import TOY, Pipe, load
from sorites.diffusion.sampler import Request, SamplerOptions, along, sampler_options_from
from sorites.diffusion.shelves import Concept, Shelf, shelf
from sorites.diffusion.sliders import Slider
from sorites.diffusion.words import with_words
from sorites.io.decode import decode
from sorites.io.files import cache, warn_damaged, write_bytes
from sorites.io.readers import numbers, parse_integer
from sorites.sources.papers.cns_bench import classes

SEVERITIES = (0.5, 1.0, 1.5, 2.0, 2.5)
SEEDS = 6
VERSION = 2
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
    "scheduler",
    "seeding",
)
PROMPT = "a picture of a {class}"


@add_source
def slider(path: str | None, labels: Labels) -> list[Sample]:
    """Draw classes with a diffusion model (slider:DIR, slider:toy), with one shift per slider; images
    are made on demand.
    """
    where, options = split_options("slider", path or TOY, dict.fromkeys(OPTIONS, ()))
    sliders = shelf(where, classes())
    drawing = sampler_options_from(sliders.record, **_sampling_options(options))
    pipeline = options.get("pipeline") or sliders.record.pipeline
    if not pipeline:
        raise SoritesError(f"slider:{where}: released sliders do not name their pipeline; add pipeline=DIR")
    pipe = load(str(pipeline))
    if "words" in options:
        pipe = with_words(pipe, options["words"], classes())
    settings = (
        tuple(sorted(s for s in numbers(options["severities"], "slider: severities") if s))
        if "severities" in options
        else SEVERITIES
    )
    seeds = parse_integer(options.get("seeds", str(SEEDS)))
    if not seeds or seeds > 100_000:
        raise SoritesError(
            f"slider: expected seeds to be a whole number from 1 to 100000, got {options.get('seeds')!r}"
        )
    world = World(pipe, sliders, drawing, options.get("prompt", PROMPT))
    return [
        world.sample(concept, seed, settings, _label(concept, labels, where))
        for concept in sliders.concepts
        for seed in range(1, seeds + 1)
    ]


def _sampling_options(options: dict[str, str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {name: options.get(name) for name in ("negative", "scheduler", "seeding")}
    for name in ("steps", "start", "size", "side"):
        if name in options:
            parsed[name] = parse_integer(options[name])
            if parsed[name] is None:
                raise SoritesError(f"slider: expected {name} as a whole number, got {options[name]!r}")
    if "guidance" in options:
        parsed["guidance"] = numbers(options["guidance"], "slider: guidance")[0]
    return parsed


def _label(concept: Concept, labels: Labels, where: str) -> int:
    ids = imagenet().ids
    label = labels.get(concept.name, *(ids[concept.number : concept.number + 1]))
    if label is None:
        raise SoritesError(
            f"slider:{where}: the class {concept.name} is not among the labels. Pass"
            f" {option('labels', 'FILE')}"
        )
    return label


@dataclass(frozen=True, eq=False)
class World:
    """A pipeline with its sliders, sampling options and prompt."""

    pipe: Pipe
    sliders: Shelf
    drawing: SamplerOptions
    prompt: str

    def sample(self, concept: Concept, seed: int, settings: tuple[float, ...], label: int) -> Sample:
        """Return the sample of a class and a seed."""
        shifts = [shift for shift in self.sliders.shifts if (shift, concept) in self.sliders.places]
        dials = tuple(
            OwnDial(
                shift,
                settings,
                functools.partial(self.sweep, concept=concept, seed=seed, shift=shift),
                "scale",
                version=self.version(shift),
                about=f"{shift.replace('_', ' ')}, drawn by a diffusion model with a slider",
            )
            for shift in shifts
        )
        image = Generated(self.clean, (concept, seed))
        # Where other bits may be drawn than in float32 on a CPU, the clean image has an id of its own.
        id_ = self._key(concept, seed, "", 0.0) if self.pipe.computed else None
        return Sample(f"{concept.folder}/seed_{seed:04d}", image, label, dials=dials, image_id=id_)

    def version(self, shift: str) -> str:
        """Return a hash of everything the images of a shift depend on besides class, seed and severity."""
        return _shift_version(self, shift)

    def clean(self, concept: Concept, seed: int) -> ImageU8:
        """Return the image of a class and a seed without any slider."""
        file = self._file(concept, seed, "", 0.0)
        image = _load_cached(file)
        if image is None:
            from sorites.diffusion.sampler import sample

            image = to_uint8(
                sample(
                    self.pipe, [Request(self._words(concept), seed, noise=self._noise(concept))], self.drawing
                )[0][0]
            )
            write_bytes(_png(image), file)
        return image

    def sweep(
        self, severities: Sequence[float], concept: Concept, seed: int, shift: str
    ) -> Iterator[ImageF32]:
        """Yield the images of a class and a seed along a slider; uncached ones are drawn in one batch."""
        from sorites.diffusion.sampler import sample

        paths = [self._file(concept, seed, shift, severity) for severity in severities]
        images = {file: cached for file in paths if (cached := _load_cached(file)) is not None}
        missing = {file: float(s) for file, s in zip(paths, severities, strict=True) if file not in images}
        if missing:
            request = along(
                self._words(concept),
                seed,
                self._slider(shift, concept),
                tuple(missing.values()),
                self._noise(concept),
            )
            for file, image in zip(missing, sample(self.pipe, [request], self.drawing)[0], strict=True):
                images[file] = to_uint8(image)
                write_bytes(_png(images[file]), file)
        yield from (to_float(images[file]) for file in paths)

    def _words(self, concept: Concept) -> str:
        return self.prompt.replace("{class}", self.pipe.word(concept.name))

    def _noise(self, concept: Concept) -> str:
        """Return the key of the initial noise: the plain class name, so that learnt words share the noise."""
        return self.prompt.replace("{class}", concept.name)

    def _slider(self, shift: str, concept: Concept) -> Slider:
        return self.sliders.slider(self.pipe, shift, concept)

    def _key(self, concept: Concept, seed: int, shift: str, severity: float) -> str:
        """Return a hash of everything that an image depends on."""
        slider_version = self._slider(shift, concept).version if shift else ""
        return digest(_base(self), slider_version, self._words(concept), seed, float(severity)).hex()

    def _file(self, concept: Concept, seed: int, shift: str, severity: float) -> Path:
        key = self._key(concept, seed, shift, severity)
        return cache("slider", key[:2], f"{key}.png")


@functools.lru_cache(maxsize=16)
def _base(world: World) -> str:
    libraries = [version(name) for name in ("torch", "diffusers", "transformers")]
    facts = (sorted(world.drawing.facts().items()), libraries, *filter(None, [world.pipe.computed]))
    return digest(VERSION, world.pipe.version, *facts).hex()


@functools.lru_cache(maxsize=256)
def _shift_version(world: World, shift: str) -> str:
    slider_versions = [
        (str(concept), world.sliders.slider(world.pipe, shift, concept).version)
        for name, concept in world.sliders.places
        if name == shift
    ]
    return digest(_base(world), world.prompt, slider_versions, size=8).hex()


def _load_cached(file: Path) -> ImageU8 | None:
    """Return a cached image, or None if it is missing or damaged."""
    if not file.is_file():
        return None
    try:
        return decode(file)
    except SoritesError as error:
        warn_damaged(file, error)
        return None


def _png(image: ImageU8) -> bytes:
    import io

    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()
