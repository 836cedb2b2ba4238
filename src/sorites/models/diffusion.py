"""Classify with a diffusion model: predict the class under which it denoises an image best (Li et al.,
ICCV 2023).

    diffusion:DIR        a diffusers folder: Stable Diffusion 1, 2 or XL with the classes of the suite,
                         or a DiT with its own classes
    diffusion:toy        the embedded model
    ?draws=32            the maximum number of noise draws, shared by all classes
    ?loss=l1|l2          mean absolute (default) or mean squared error
    ?sure=2&first=4      after `first` draws, drop classes that are worse by `sure` standard errors;
                         sure=0 drops none
    ?prompt=a photo of a {class}     the prompt of a class; of several, separated by |, the best counts
    ?words=DIR           learnt words of "sorites generate words"
    ?offload=model|sequential        networks, or single layers, wait on the CPU while they are not used
    ?slicing=yes&tiling=yes          the autoencoder sees one image, or tiles of it, at a time

Logits are negative errors; those of dropped classes are based on fewer draws. The logits of each image
are cached immediately, so that an interrupted run resumes after the last image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Backend, Model, Outputs, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.rng import digest
from sorites.diffusion.classify import ClassifierOptions, classify
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.pipeline import BY_WORDS, TOY, Pipe, load
from sorites.diffusion.saving import Saving
from sorites.diffusion.words import with_words
from sorites.io.files import cache, write_bytes
from sorites.io.readers import numbers, parse_integer
from sorites.models.export import checked
from sorites.models.options import options as options_of
from sorites.models.options import without_classes
from sorites.models.preprocess import Input

OPTIONS = ("draws", "loss", "sure", "first", "seed", "prompt", "words", "offload", "slicing", "tiling")
SWITCH = ("yes", "no")
PROMPT = "a photo of a {class}"
TOY_PROMPT = "a picture of a {class}|a picture of a {class} in snow|a picture of a {class} in night"
VERSION = 1


@add_model
def diffusion(argument: str | None) -> Model:
    """Classify by denoising error of a diffusion model (diffusion:DIR, diffusion:toy), with the classes
    of the suite.
    """
    path, _, query = (argument or "").partition("?")
    if not path:
        raise SoritesError("model diffusion: expected a diffusers folder: diffusion:DIR or diffusion:toy")
    options = options_of("diffusion", query, OPTIONS)
    pipe = load(path, kinds=(*BY_WORDS, "dit"), saving=_saving(options))
    if "words" in options:
        pipe = with_words(pipe, options["words"])
    how, name, wants = _judging(options), f"diffusion:{argument}", _wants(pipe)
    if pipe.kind == "dit":
        if "prompt" in options or "words" in options:
            raise SoritesError(f"{name}: a DiT is conditioned on class numbers; remove prompt and words")
        count = int(pipe.network.config.num_embeds_ada_norm)
        ids = tuple(imagenet().ids) if count == len(imagenet().ids) else None
        return replace(
            _model(name, Judge(pipe, how, tuple(range(count)), tuple(range(count)), ""), wants), labels=ids
        )
    templates = _templates(options.get("prompt", TOY_PROMPT if path == TOY else PROMPT))
    for_classes = partial(_for_classes, name, pipe, how, templates, wants)
    key = _version(pipe, how, templates, ())
    return Model(
        name,
        without_classes(name),
        wants.prepare,
        version=key,
        for_classes=for_classes,
        input=wants.described,
        scale="logits",
        backend=_backend(pipe),
    )


def _saving(options: dict[str, str]) -> Saving:
    switches = {}
    for name in ("slicing", "tiling"):
        value = options.get(name, "no")
        if value not in SWITCH:
            raise SoritesError(f"model diffusion: expected {name} as {' or '.join(SWITCH)}, got {value!r}")
        switches[name] = value == "yes"
    return Saving(options.get("offload", "none"), **switches)


def _backend(pipe: Pipe) -> Backend:
    """Return what computes: images are classified one by one, so the size of a batch does not matter."""
    return Backend("torch", pipe.device, pipe.dtype)


def _wants(pipe: Pipe) -> Input:
    """Return the input of a pipeline: its image size, and pixels from -1 to 1."""
    return Input(size=(pipe.side, pipe.side), mean=(0.5,) * 3, std=(0.5,) * 3, crop_pct=1.0)


def _judging(options: dict[str, str]) -> ClassifierOptions:
    parsed: dict[str, Any] = {"loss": options["loss"]} if "loss" in options else {}
    for key in ("draws", "first", "seed"):
        if key in options:
            parsed[key] = parse_integer(options[key])
            if parsed[key] is None:
                raise SoritesError(f"model diffusion: expected {key} as a whole number, got {options[key]!r}")
    if "sure" in options:
        parsed["sure"] = numbers(options["sure"], "model diffusion: sure")[0]
    return ClassifierOptions(**parsed)


def _templates(text: str) -> tuple[str, ...]:
    templates = tuple(part.strip() for part in text.split("|"))
    wrong = [part for part in templates if part.count("{class}") != 1]
    if wrong:
        raise SoritesError(f"model diffusion: expected a prompt with {{class}} once, got {wrong[0]!r}")
    return templates


def _version(pipe: Pipe, how: ClassifierOptions, templates: Sequence[str], classes: Sequence[str]) -> str:
    libraries = [version(name) for name in ("torch", "diffusers", "transformers")]
    facts = (sorted(how.facts().items()), list(templates), list(classes), libraries)
    return digest(VERSION, pipe.version, *facts, *filter(None, [pipe.computed]), size=16).hex()


def _for_classes(
    name: str,
    pipe: Pipe,
    how: ClassifierOptions,
    templates: Sequence[str],
    wants: Input,
    classes: Sequence[str],
) -> Model:
    """Return a model for these class names, in order."""
    words = [pipe.word(each.replace("_", " ")) for each in classes]
    prompts = [template.replace("{class}", word) for word in words for template in templates]
    with pipe.busy:
        conditions = tuple(encode_prompt(pipe, prompt, "", pipe.side) for prompt in prompts)
    owners = tuple(i for i in range(len(words)) for _ in templates)
    key = _version(pipe, how, templates, words)
    return _model(name, Judge(pipe, how, conditions, owners, key), wants)


def _model(name: str, judge: Judge, wants: Input) -> Model:
    size = sum(weights.numel() for weights in judge.pipe.network.parameters())
    return Model(
        name,
        checked(name, judge.forward),
        wants.prepare,
        version=judge.version,
        parameters=size,
        input=wants.described,
        scale="logits",
        backend=_backend(judge.pipe),
    )


@dataclass(frozen=True, eq=False)
class Judge:
    """A pipeline with the conditions (encoded prompts or class numbers) of its classes.

    ``owners`` holds the class index of each condition.
    """

    pipe: Pipe
    how: ClassifierOptions
    conditions: tuple[Any, ...]
    owners: tuple[int, ...]
    key: str

    @property
    def version(self) -> str:
        """A hash of everything that the logits depend on besides the image."""
        return self.key or _version(self.pipe, self.how, (), [str(number) for number in self.conditions])

    def forward(self, images: list[NDArray[Any]]) -> Outputs:
        """Return the logits of images; those of each image are cached immediately."""
        return Outputs(np.stack([self._logits(image) for image in images]))

    def _logits(self, image: NDArray[Any]) -> NDArray[np.float32]:
        key = digest(self.version, np.ascontiguousarray(image).tobytes().hex()).hex()
        file, size = cache("diffusion", key[:2], f"{key}.f32"), 4 * (max(self.owners) + 1)
        if file.is_file() and file.stat().st_size == size:
            return np.frombuffer(file.read_bytes(), "<f4").astype(np.float32)
        logits = classify(self.pipe, image, self.conditions, self.owners, self.how).logits
        write_bytes(logits.astype("<f4").tobytes(), file)
        return logits
