"""Predict with an image-text model by the text that an image is nearest to (zero-shot; Radford et al. 2021).

``open_clip:ViT-B-32@weights.safetensors``, or with sentences from a file
``open_clip:ViT-B-32@openai?templates=FILE``. The classes are those of the suite: each is described
by every template with its name in the place of ``{}``, and is the mean direction of these texts, as
in CLIP's own evaluation. Features are the direction of the image, so that scorers see features, a
last layer (the classes' directions times the model's logit scale) and the logits that the two make.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head, Model, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import TWINS
from sorites.core.rng import digest
from sorites.core.torch_tools import one_thread
from sorites.io.open_clip import Encoders, load
from sorites.io.paths import path_of
from sorites.io.readers import lines
from sorites.models.options import options, without_classes
from sorites.models.preprocess import Input
from sorites.models.torch_module import torch_model

if TYPE_CHECKING:
    from torch import Tensor, nn

# The prompt of FOCUS, with the first synonym of a class in its place.
TEMPLATES = ("a photo of a {}",)
OPTIONS = ("templates",)
# The resize modes of open_clip's transforms, and the names that our preprocessing has for them.
MODES = {"shortest": "center", "squash": "squash"}


@add_model
def open_clip(argument: str | None) -> Model:
    """Predict by the nearest text (open_clip:NAME@WEIGHTS[?templates=FILE]): zero-shot, with the
    classes of the suite.
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
    )


def _templates(options: dict[str, str]) -> tuple[str, ...]:
    """Return the sentences with a place for a name: those of the file, one per line, or the default."""
    if "templates" not in options:
        return TEMPLATES
    path = path_of(options["templates"])
    found = tuple(filter(None, (line.strip() for line in lines(path, "templates, one per line"))))
    wrong = [line for line in found if line.count("{}") != 1]
    if wrong or not found:
        came = repr(wrong[0]) if wrong else "an empty file"
        raise SoritesError(
            f"{path}: wanted one sentence per line with {{}} for the class, such as {TEMPLATES[0]!r}, got"
            f" {came}"
        )
    return found


def _wants(encoders: Encoders) -> Input:
    """Return the input that the model's own transform gives it."""
    config = encoders.model.visual.preprocess_cfg
    if config["resize_mode"] not in MODES:
        raise SoritesError(
            f"{encoders.spec}: wanted a model that resizes by {' or '.join(MODES)}, got"
            f" {config['resize_mode']!r}"
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
    """Return the model whose classes have these names, in their order."""
    spoken = [_spoken(each) for each in classes]
    with one_thread():
        head = _head(encoders, [[template.replace("{}", each) for template in templates] for each in spoken])
    made = torch_model(name, _graph(encoders.model, head), wants, head=head)
    version = digest(
        encoders.version, wants.model_dump_json(), "\n".join(templates), "\n".join(spoken), size=16
    ).hex()
    size = sum(weights.numel() for weights in encoders.model.parameters())
    return replace(made, version=version, parameters=size, cache_version=None)


def _spoken(name: str) -> str:
    """Return a class as a sentence says it: underscores are spaces, and what we add to tell
    WordNet's twins apart is left out, because the published prompts have the bare first synonym.
    """
    return (name.rpartition(" (")[0] if name in TWINS.values() else name).replace("_", " ")


def _head(encoders: Encoders, prompts: Sequence[Sequence[str]]) -> Head:
    """Return the logit scale times each class's direction (C x D), and the bias C, which is 0 for CLIP."""
    every = encoders.texts([prompt for ways in prompts for prompt in ways]).astype(np.float64)
    means = _directions(every).reshape(len(prompts), -1, every.shape[1]).mean(axis=1)
    scale, shift = encoders.model.logit_scale, getattr(encoders.model, "logit_bias", None)
    weight = _directions(means) * float(scale.detach().exp().reshape(-1)[0])
    bias = 0.0 if shift is None else float(shift.detach().reshape(-1)[0])
    return weight.astype(np.float32), np.full(len(prompts), bias, np.float32)


def _directions(rows: NDArray[np.float64]) -> NDArray[np.float64]:
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
