"""Photographs of another source, moved along sliders or edited by an instruction; images are made on demand.

    edited:SLIDERS?photos=SPEC         photographs of a source (folder:DIR), moved by inversion along the sliders
                                       of a folder, of released ones, or of toy
    ?method=edit_friendly|ddim         the inversion
    ?pipeline=DIR&words=DIR&prompt=... the pipeline, learnt words, and the prompt with {class}
    ?control=DIR&control_image=edges|python:module:function&control_scale=1
                                       a ControlNet that holds the edges, or another map, of the photograph
    ?steps=50&guidance=1&start=750     settings of the sampler; guidance 1 keeps most of a photograph
    edited:PIPELINE?photos=SPEC&instruction=make it snow&shift=snow
                                       a pipeline like InstructPix2Pix; severity multiplies the text guidance
    ?steps=100&guidance=7.5&image_guidance=1.5&scheduler=own
    ?severities=0.5,1                  the severities of the shifts; default: 0.2 to 1, where 1 is the strength
                                       at which sliders are trained

The clean image is the photograph itself, cropped to a square and scaled to the width of the pipeline; it never
passes through it. The dial ``reconstruction`` is what the pipeline makes of a photograph without an edit:
it shows what the inversion alone costs, and its PSNR is the error of the reconstruction.
"""  # noqa: E501

from __future__ import annotations

import functools
import io
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.core import CLEAN, Generated, ImageF32, ImageU8, OwnDial, Sample, add_source, to_float, to_uint8
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import Labels, imagenet
from sorites.core.refs import ImageRef
from sorites.core.rng import digest
from sorites.core.specs import split_options
from sorites.diffusion.control import EDGES, with_control
from sorites.diffusion.instruct import InstructOptions, instruct_photograph
from sorites.diffusion.inversion import METHODS, PhotoEdit, edit_photograph, schedule_of
from sorites.diffusion.pipeline import BY_INSTRUCTION, TOY, Pipe, load
from sorites.diffusion.sampler import sampler_options_from
from sorites.diffusion.shelves import Concept, Shelf, shelf
from sorites.diffusion.words import with_words
from sorites.io.decode import decode
from sorites.io.files import cache, warn_damaged, write_bytes
from sorites.io.readers import numbers, parse_integer
from sorites.io.resizing import fit
from sorites.sources.papers.cns_bench import classes

# Up to the strength at which sliders are trained, or to the published text guidance: beyond it an edit
# extrapolates, which photographs stand less than images of the model itself.
SEVERITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
VERSION = 1
PROMPT = "a picture of a {class}"
RECONSTRUCTION = "reconstruction"
# Guidance of sliders on photographs, unless another is asked for.
GUIDANCE = 1.0
# Options of both kinds of edits, of sliders, and of instructions.
SHARED = ("photos", "severities", "steps", "guidance")
OF_SLIDERS = (
    "method", "pipeline", "words", "prompt", "start", "control", "control_image", "control_scale",
)  # fmt: skip
OF_INSTRUCTIONS = ("instruction", "shift", "image_guidance", "scheduler")


@add_source
def edited(path: str | None, labels: Labels) -> list[Sample]:
    """Read photographs of another source, with shifts that a diffusion model draws into them
    (edited:SLIDERS?photos=folder:DIR); images are made on demand.
    """
    where, options = split_options(
        "edited", path or TOY, dict.fromkeys((*SHARED, *OF_SLIDERS, *OF_INSTRUCTIONS), ())
    )
    if "photos" not in options:
        raise SoritesError("edited: expected photos=SPEC, a source of photographs such as folder:DIR")
    levels = (
        tuple(sorted(s for s in numbers(options["severities"], "edited: severities") if s))
        if "severities" in options
        else SEVERITIES
    )
    photographs = [s for s in core.source(options["photos"], labels).samples if s.shift == CLEAN]
    editor = _instructor(where, options) if "instruction" in options else _mover(where, options, labels)
    found = [_sample(sample, editor, levels) for sample in photographs if editor.shifts(sample)]
    if not found:
        raise SoritesError(
            f"edited:{where}: none of the {len(photographs)} photographs is of a class with a slider"
        )
    if left := len(photographs) - len(found):
        text = f"{left} of {len(photographs)} photographs are of classes without a slider and are left out"
        warnings.warn(Notice(text, code="no_slider", count=left), stacklevel=2)
    return found


@dataclass(frozen=True, eq=False)
class Editor:
    """Edits square photographs; ``base`` is a hash of what all its images depend on."""

    pipe: Pipe
    base: str

    @abstractmethod
    def shifts(self, sample: Sample) -> tuple[str, ...]:
        """Return the names of the shifts of a photograph."""

    @abstractmethod
    def version(self, shift: str) -> str:
        """Return a hash of what the images of a shift depend on besides photograph and severity."""

    @abstractmethod
    def images(
        self, photograph: ImageU8, sample: Sample, shift: str, severities: Sequence[float]
    ) -> list[ImageF32]:
        """Return a photograph at severities of a shift, or its reconstruction."""

    def square(self, photograph: ImageRef, framed: bool) -> ImageU8:
        """Return a photograph cropped to a square and scaled to the width of the pipeline."""
        image = fit(photograph.load(), framed, (self.pipe.side, self.pipe.side), 1.0)
        return np.ascontiguousarray(image)


def _sample(sample: Sample, editor: Editor, levels: tuple[float, ...]) -> Sample:
    dials = [
        OwnDial(
            shift,
            levels,
            functools.partial(_sweep, editor, sample, shift),
            "scale",
            version=editor.version(shift),
            about=f"{shift.replace('_', ' ')}, drawn into a photograph by a diffusion model",
        )
        for shift in editor.shifts(sample)
    ]
    plain = functools.partial(_sweep, editor, sample, RECONSTRUCTION)
    about = "what the diffusion model makes of a photograph without an edit"
    dials.append(OwnDial(RECONSTRUCTION, (1.0,), plain, version=editor.base, about=about))
    image = Generated(editor.square, (sample.image, sample.framed), version=editor.pipe.side)
    return Sample(
        sample.id, image, sample.label, sample.accept, attrs=sample.attrs, framed=True, dials=tuple(dials)
    )


def _sweep(editor: Editor, sample: Sample, shift: str, severities: Sequence[float]) -> Iterator[ImageF32]:
    """Yield a photograph along a shift; images that are not in the cache are made together."""
    photograph = editor.square(sample.image, sample.framed)
    content = digest(photograph.tobytes().hex()).hex()
    version = editor.base if shift == RECONSTRUCTION else editor.version(shift)
    asked = [1.0 if shift == RECONSTRUCTION else float(severity) for severity in severities]
    keys = [digest(version, sample.id, content, sample.label, shift, severity).hex() for severity in asked]
    files = [cache("edited", key[:2], f"{key}.png") for key in keys]
    images = {file: found for file in files if (found := _load_cached(file)) is not None}
    missing = {file: severity for file, severity in zip(files, asked, strict=True) if file not in images}
    if missing:
        made = editor.images(photograph, sample, shift, list(missing.values()))
        for file, image in zip(missing, made, strict=True):
            images[file] = to_uint8(image)
            write_bytes(_png(images[file]), file)
    yield from (to_float(images[file]) for file in files)


def _load_cached(file: Path) -> ImageU8 | None:
    if not file.is_file():
        return None
    try:
        return decode(file)
    except SoritesError as error:
        warn_damaged(file, error)
        return None


def _png(image: ImageU8) -> bytes:
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def _base(pipe: Pipe, *settings: object) -> str:
    libraries = [version(name) for name in ("torch", "diffusers", "transformers")]
    return digest(VERSION, pipe.version, pipe.computed, libraries, *settings, size=8).hex()


def _whole_number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    value = parse_integer(options[name])
    if value is None:
        raise SoritesError(f"edited: expected {name} as a whole number, got {options[name]!r}")
    return value


def _number(options: Mapping[str, str], name: str, default: float) -> float:
    return numbers(options[name], f"edited: {name}")[0] if name in options else default


def _refuse(options: Mapping[str, str], others: Sequence[str], needed: str) -> None:
    if wrong := [name for name in others if name in options]:
        raise SoritesError(f"edited: the option {wrong[0]} {needed}")


# Photographs along sliders.


@dataclass(frozen=True, eq=False)
class Mover(Editor):
    """Moves photographs along sliders by inversion."""

    sliders: Shelf
    how: PhotoEdit
    prompt: str
    concepts: Mapping[int, Concept]
    """The classes by label."""

    def shifts(self, sample: Sample) -> tuple[str, ...]:
        concept = None if sample.label is None else self.concepts.get(sample.label)
        return tuple(shift for shift in self.sliders.shifts if (shift, concept) in self.sliders.places)

    def version(self, shift: str) -> str:
        return _mover_version(self, shift)

    def images(
        self, photograph: ImageU8, sample: Sample, shift: str, severities: Sequence[float]
    ) -> list[ImageF32]:
        assert sample.label is not None
        concept = self.concepts[sample.label]
        slider = None if shift == RECONSTRUCTION else self.sliders.slider(self.pipe, shift, concept)
        words = self.prompt.replace("{class}", self.pipe.word(concept.name))
        return edit_photograph(self.pipe, photograph, words, slider, severities, self.how, sample.id)


@functools.lru_cache(maxsize=256)
def _mover_version(mover: Mover, shift: str) -> str:
    sliders = [
        (str(concept), mover.sliders.slider(mover.pipe, shift, concept).version)
        for name, concept in mover.sliders.places
        if name == shift
    ]
    return digest(mover.base, sliders, size=8).hex()


def _mover(where: str, options: Mapping[str, str], labels: Labels) -> Mover:
    _refuse(options, OF_INSTRUCTIONS, "needs instruction=...")
    sliders = shelf(where, classes())
    pipeline = options.get("pipeline") or sliders.record.pipeline
    if not pipeline:
        raise SoritesError(f"edited:{where}: released sliders do not name their pipeline; add pipeline=DIR")
    changes: dict[str, Any] = {name: _whole_number(options, name) for name in ("steps", "start")}
    guidance = _number(options, "guidance", GUIDANCE)
    drawing = sampler_options_from(sliders.record, **changes, guidance=guidance, size=None)
    how = PhotoEdit(options.get("method", METHODS[0]), drawing)
    pipe = load(str(pipeline))
    schedule_of(pipe, drawing)
    if "words" in options:
        pipe = with_words(pipe, options["words"], classes())
    if "control" in options:
        scale = _number(options, "control_scale", 1.0)
        pipe = with_control(pipe, options["control"], options.get("control_image", EDGES), scale)
    prompt = options.get("prompt", PROMPT)
    ids = imagenet().ids
    found = {
        labels.get(concept.name, *ids[concept.number : concept.number + 1]): concept
        for concept in sliders.concepts
    }
    concepts = {label: concept for label, concept in found.items() if label is not None}
    base = _base(pipe, how.method, sorted(drawing.facts().items()), prompt)
    return Mover(pipe, base, sliders, how, prompt, concepts)


# Photographs by an instruction.


@dataclass(frozen=True, eq=False)
class Instructor(Editor):
    """Edits photographs by an instruction. The reconstruction is an edit by an empty one."""

    shift: str
    instruction: str
    how: InstructOptions

    def shifts(self, sample: Sample) -> tuple[str, ...]:
        return (self.shift,)

    def version(self, shift: str) -> str:
        return self.base

    def images(
        self, photograph: ImageU8, sample: Sample, shift: str, severities: Sequence[float]
    ) -> list[ImageF32]:
        text = "" if shift == RECONSTRUCTION else self.instruction
        return instruct_photograph(self.pipe, photograph, text, severities, self.how, sample.id)


def _instructor(where: str, options: Mapping[str, str]) -> Instructor:
    _refuse(options, OF_SLIDERS, "belongs to sliders, not to an instruction")
    default = InstructOptions()
    how = InstructOptions(
        _whole_number(options, "steps") or default.steps,
        _number(options, "guidance", default.guidance),
        _number(options, "image_guidance", default.image_guidance),
        options.get("scheduler", default.scheduler),
    )
    instruction = options["instruction"]
    shift = options.get("shift") or instruction.strip().lower().replace(" ", "_")
    pipe = load(where, kinds=BY_INSTRUCTION)
    return Instructor(pipe, _base(pipe, how, instruction), shift, instruction, how)
