"""Classify with a diffusion model: the class under which it predicts the noise on an image best
(Li et al., ICCV 2023).

    diffusion:DIR        a folder of diffusers: Stable Diffusion 1, 2, XL with the classes of the
        suite, or a DiT with its own
    diffusion:toy        the embedded one
    ?draws=32            draws of noise at most; the same for all classes
    ?loss=l1|l2          the mean size of the error (default), or its mean square
    ?sure=2&first=4      classes drop out that are behind by so many standard errors, first after so
        many draws; sure=0: none does
    ?prompt=a photo of a {class}     the words for a class; several with | between them: a class is
        as good as the best of them
    ?words=DIR           learnt words of "sorites generate words"

Logits are minus the error. That of a class which dropped out rests on fewer draws than that of the
winner. What is found of an image is kept in the cache as soon as it is found, so that a stopped
run goes on after the last image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.rng import digest
from sorites.diffusion.classify import Judging, judged
from sorites.diffusion.pipeline import BY_WORDS, TOY, Pipe, load
from sorites.diffusion.sampler import encoded
from sorites.diffusion.words import with_words
from sorites.io.files import cache, write_bytes
from sorites.io.readers import numbers, whole
from sorites.models.export import checked
from sorites.models.options import options as options_of
from sorites.models.options import without_classes
from sorites.models.preprocess import Input

OPTIONS = ("draws", "loss", "sure", "first", "seed", "prompt", "words")
PROMPT = "a photo of a {class}"
TOY_PROMPT = "a picture of a {class}|a picture of a {class} in snow|a picture of a {class} in night"
VERSION = 1


@add_model
def diffusion(argument: str | None) -> Model:
    """Classify by the noise that a diffusion model predicts best (diffusion:DIR, diffusion:toy);
    classes are the suite's.
    """
    path, _, query = (argument or "").partition("?")
    if not path:
        raise SoritesError(
            "model diffusion: wanted a folder of diffusers. Type: diffusion:DIR or diffusion:toy"
        )
    options = options_of("diffusion", query, OPTIONS)
    pipe = load(path, kinds=(*BY_WORDS, "dit"))
    if "words" in options:
        pipe = with_words(pipe, options["words"])
    how, name, wants = _judging(options), f"diffusion:{argument}", _wants(pipe)
    if pipe.kind == "dit":
        if "prompt" in options or "words" in options:
            raise SoritesError(f"{name}: a DiT draws by the numbers of classes: leave prompt and words out")
        count = int(pipe.network.config.num_embeds_ada_norm)
        ids = tuple(imagenet().ids) if count == len(imagenet().ids) else None
        return replace(
            _model(name, Judge(pipe, how, tuple(range(count)), tuple(range(count)), ""), wants), labels=ids
        )
    templates = _templates(options.get("prompt", TOY_PROMPT if path == TOY else PROMPT))
    made = partial(_for_classes, name, pipe, how, templates, wants)
    key = _version(pipe, how, templates, ())
    return Model(
        name, without_classes(name), wants.prepare, version=key, for_classes=made, input=wants.described
    )


def _wants(pipe: Pipe) -> Input:
    """Return the input of a pipeline: its width, and pixels from -1 to 1."""
    return Input(size=(pipe.side, pipe.side), mean=(0.5,) * 3, std=(0.5,) * 3, crop_pct=1.0)


def _judging(options: dict[str, str]) -> Judging:
    given: dict[str, Any] = {"loss": options["loss"]} if "loss" in options else {}
    for key in ("draws", "first", "seed"):
        if key in options:
            given[key] = whole(options[key])
            if given[key] is None:
                raise SoritesError(f"model diffusion: wanted {key} as a whole number, got {options[key]!r}")
    if "sure" in options:
        given["sure"] = numbers(options["sure"], "model diffusion: sure")[0]
    return Judging(**given)


def _templates(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split("|"))
    wrong = [part for part in found if part.count("{class}") != 1]
    if wrong:
        raise SoritesError(f"model diffusion: wanted a prompt with {{class}} once in it, got {wrong[0]!r}")
    return found


def _version(pipe: Pipe, how: Judging, templates: Sequence[str], classes: Sequence[str]) -> str:
    libraries = [version(name) for name in ("torch", "diffusers", "transformers")]
    return digest(
        VERSION, pipe.version, sorted(how.facts().items()), list(templates), list(classes), libraries, size=16
    ).hex()


def _for_classes(
    name: str, pipe: Pipe, how: Judging, templates: Sequence[str], wants: Input, classes: Sequence[str]
) -> Model:
    """Return the model whose classes have these names, in their order."""
    spoken = [pipe.word(each.replace("_", " ")) for each in classes]
    prompts = [template.replace("{class}", each) for each in spoken for template in templates]
    with pipe.busy:
        conditions = tuple(encoded(pipe, prompt, "", pipe.side) for prompt in prompts)
    owners = tuple(place for place in range(len(spoken)) for _ in templates)
    key = _version(pipe, how, templates, spoken)
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
    )


@dataclass(frozen=True, eq=False)
class Judge:
    """A pipeline with the conditions of its classes."""

    pipe: Pipe
    how: Judging
    conditions: tuple[Any, ...]
    owners: tuple[int, ...]
    key: str

    @property
    def version(self) -> str:
        """Return a hash of all that an answer follows from beside the image."""
        return self.key or _version(self.pipe, self.how, (), [str(one) for one in self.conditions])

    def forward(self, images: list[NDArray[Any]]) -> Outputs:
        """Return the logits of images, each kept in the cache as soon as it is there."""
        return Outputs(np.stack([self._logits(image) for image in images]))

    def _logits(self, image: NDArray[Any]) -> NDArray[np.float32]:
        key = digest(self.version, np.ascontiguousarray(image).tobytes().hex()).hex()
        file, size = cache("diffusion", key[:2], f"{key}.f32"), 4 * (max(self.owners) + 1)
        if file.is_file() and file.stat().st_size == size:
            return np.frombuffer(file.read_bytes(), "<f4").astype(np.float32)
        logits = judged(self.pipe, image, self.conditions, self.owners, self.how).logits
        write_bytes(logits.astype("<f4").tobytes(), file)
        return logits
