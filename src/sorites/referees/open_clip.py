"""CLIP and similar models from the open_clip library: ``open_clip:ViT-B-32@openai``, ``open_clip:ViT-B-32@FILE``.

After the @ comes a tag that open_clip knows (it then fetches the weights itself) or a file with weights. The model brings its own
preprocessing and tokenizer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core import Features, Picture, Referee, add_referee
from sorites.errors import SoritesError
from sorites.referees._features import checked
from sorites.torch_tools import beside_torchvision

BATCH = 32


@add_referee
def open_clip(argument: str | None) -> Referee:
    """open_clip:NAME@WEIGHTS: a model of the open_clip library; NAME may be a .json config, WEIGHTS a tag or a file."""
    architecture, _, weights = (argument or "").partition("@")
    if not architecture or not weights:
        raise SoritesError(f"referee open_clip: wanted NAME@WEIGHTS, such as ViT-B-32@openai, got {argument!r}")
    library = beside_torchvision("open_clip", "referee open_clip", "clip")
    name = _configured(library, architecture)
    try:
        with _silent():
            model, _, prepare = library.create_model_and_transforms(name, pretrained=weights)
            tokens = library.get_tokenizer(name)
    except Exception as error:  # whatever the library, a hub or a file does
        raise SoritesError(f"referee open_clip:{argument} did not load: {error}") from error
    model = model.eval().float()
    return Referee(
        f"open_clip:{argument}",
        functools.partial(_images, model, prepare),
        functools.partial(_texts, model, tokens),
        _version(model),
    )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the library's log out: it writes to the root logger, which sets that up, and then raises with the same words."""

    def ours(record: logging.LogRecord) -> bool:
        return "open_clip" not in Path(record.pathname).parts

    root = logging.getLogger()
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(ours)
    try:
        yield
    finally:
        root.removeFilter(ours)
        root.removeHandler(handler)


def _configured(library: Any, architecture: str) -> str:
    """Return the architecture's name; a config file is first registered with the library under its own name."""
    if not architecture.endswith(".json"):
        return architecture
    path = Path(architecture).expanduser()
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read the open_clip config {path}: {error}") from error
    library.add_model_config(path)
    return path.stem


def _images(model: Any, prepare: Any, pictures: Sequence[Picture], framed: bool = False) -> Features:
    """Encode pictures with the model's own transform: it crops the centre, and cuts nothing off a square."""
    import torch
    from PIL import Image

    def encoded(some: Sequence[Picture]) -> Any:
        return model.encode_image(torch.stack([prepare(Image.fromarray(picture)) for picture in some]))

    return _batched(encoded, pictures)


def _texts(model: Any, tokens: Any, sentences: Sequence[str]) -> Features:
    return _batched(lambda some: model.encode_text(tokens(list(some))), sentences)


def _batched(encoded: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Features:
    import torch

    if not items:
        raise SoritesError("referee open_clip: nothing to look at")
    with torch.inference_mode():
        parts = [encoded(items[start : start + BATCH]).float().numpy() for start in range(0, len(items), BATCH)]
    return checked("open_clip", np.concatenate(parts), len(items))


def _version(model: Any) -> str:
    """Return a hash of every weight by name."""
    hasher = hashlib.sha256()
    for key, value in model.state_dict().items():
        hasher.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return hasher.hexdigest()[:32]
