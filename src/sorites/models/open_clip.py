"""Zero-shot classification with an image-text model (Radford et al. 2021).

``open_clip:ViT-B-32@weights.safetensors``, or with prompts from a file
``open_clip:ViT-B-32@openai?templates=FILE``. The classes are those of the suite: the embedding of a class
is the mean of the normalised embeddings of all templates with its name in place of ``{}``, as in CLIP's
evaluation. Features are normalised image embeddings, so that scorers get features, a last layer (class
embeddings times the logit scale) and the resulting logits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head, Model, add_model
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.labels import AMBIGUOUS_NAMES
from sorites.core.rng import digest
from sorites.io.open_clip import Encoders, load
from sorites.io.paths import path_of
from sorites.io.readers import lines
from sorites.models.options import options, without_classes
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model

if TYPE_CHECKING:
    from torch import Tensor, nn

# The prompt of FOCUS, to be filled with the first synonym of a class.
TEMPLATES = ("a photo of a {}",)
OPTIONS = ("templates",)
# Maps the resize modes of open_clip to those of ``sorites.models.preprocess``.
MODES = {"shortest": "center", "squash": "squash"}


@add_model
def open_clip(argument: str | None) -> Model:
    """Classify zero-shot by the nearest text (open_clip:NAME@WEIGHTS[?templates=FILE]), with the classes
    of the suite.
    """
    pair, _, query = (argument or "").partition("?")
    templates = _templates(options("open_clip", query, OPTIONS))
    encoders = load("model", pair or None)
    name, wants = f"open_clip:{argument}", _wants(encoders)
    version = digest(encoders.version, wants.model_dump_json(), "\n".join(templates), size=16).hex()

    classifier = functools.partial(_classifier, name, encoders, wants, templates)
    return Model(
        name,
        without_classes(name),
        wants.prepare,
        version=version,
        for_classes=classifier,
        input=wants.described,
        scale="logits",
    )


def _templates(options: dict[str, str]) -> tuple[str, ...]:
    """Return the templates of the file, one per line, or the default."""
    if "templates" not in options:
        return TEMPLATES
    path = path_of(options["templates"])
    templates = tuple(filter(None, (line.strip() for line in lines(path, "templates, one per line"))))
    wrong = [line for line in templates if line.count("{}") != 1]
    if wrong or not templates:
        actual = repr(wrong[0]) if wrong else "an empty file"
        raise SoritesError(
            f"{path}: expected one template per line with {{}} for the class, such as {TEMPLATES[0]!r}, got"
            f" {actual}"
        )
    return templates


def _wants(encoders: Encoders) -> Input:
    """Return the input of the model's own transform."""
    config = encoders.model.visual.preprocess_cfg
    if config["resize_mode"] not in MODES:
        raise SoritesError(
            f"{encoders.spec}: expected resize mode {' or '.join(MODES)}, got {config['resize_mode']!r}"
        )
    size = config["size"]
    return Input.read(
        {
            "size": size if isinstance(size, int) else tuple(size),
            "mean": tuple(config["mean"]),
            "std": tuple(config["std"]),
            "crop_pct": 1.0,
            "filter": "bilinear" if config["interpolation"] == "bilinear" else "bicubic",
            "mode": MODES[config["resize_mode"]],
        },
        encoders.spec,
    )


def _classifier(
    name: str, encoders: Encoders, wants: Input, templates: Sequence[str], classes: Sequence[str]
) -> Model:
    """Return a model for these class names, in order."""
    names = [_plain_name(each) for each in classes]
    with one_thread():
        head = _head(encoders, _prompts(templates, names))
    model = torch_model(name, _graph(encoders.model, head), wants, head=head)
    version = digest(
        encoders.version, wants.model_dump_json(), "\n".join(templates), "\n".join(names), size=16
    ).hex()
    size = sum(weights.numel() for weights in encoders.model.parameters())
    texts = functools.partial(_texts, encoders, templates)
    return replace(model, version=version, parameters=size, cache_version=None, texts=texts)


def _prompts(templates: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    return [[template.replace("{}", each) for template in templates] for each in names]


def _texts(encoders: Encoders, templates: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
    """Return the embeddings of names like those of classes: the mean over all templates, of length 1."""
    with one_thread():
        return _embedded(encoders, _prompts(templates, names))


def _plain_name(name: str) -> str:
    """Return a class name for prompts: without underscores, and without the suffix that distinguishes
    WordNet synsets of the same name, because the published prompts use the plain first synonym.
    """
    return (name.rpartition(" (")[0] if name in AMBIGUOUS_NAMES.values() else name).replace("_", " ")


def _head(encoders: Encoders, prompts: Sequence[Sequence[str]]) -> Head:
    """Return the class embeddings times the logit scale (C x D), and the bias C, which is 0 for CLIP."""
    scale, bias_parameter = encoders.model.logit_scale, getattr(encoders.model, "logit_bias", None)
    weight = _embedded(encoders, prompts) * float(scale.detach().exp().reshape(-1)[0])
    bias = 0.0 if bias_parameter is None else float(bias_parameter.detach().reshape(-1)[0])
    return weight.astype(np.float32), np.full(len(prompts), bias, np.float32)


def _embedded(encoders: Encoders, prompts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the normalised mean embedding of the prompts of each class."""
    embeddings = encoders.texts([prompt for templates in prompts for prompt in templates]).astype(np.float64)
    return _normalise(_normalise(embeddings).reshape(len(prompts), -1, embeddings.shape[1]).mean(axis=1))


def _normalise(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _graph(pair: Any, head: Head) -> nn.Module:
    """Return the module that maps normalised images to (logits, features)."""
    import torch
    from torch import nn

    class ZeroShot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = pair
            self.head = nn.Linear(head[0].shape[1], len(head[1]))
            self.head.load_state_dict(
                {"weight": torch.from_numpy(head[0]), "bias": torch.from_numpy(head[1])}
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features = nn.functional.normalize(self.pair.encode_image(x), dim=-1)
            return self.head(features), features

    return ZeroShot()
