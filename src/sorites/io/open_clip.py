"""A pair of encoders of the open_clip library: an architecture by its name or by a .json config,
and its weights.

After the @ comes a file with weights (.safetensors, or a torch file that holds only tensors) or a
tag that open_clip knows. Only a tag, an architecture of a hub (``hf-hub:...``) or a tokenizer that
the config names makes the library use the network.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core import Features, ImageU8
from sorites.core.errors import SoritesError
from sorites.core.torch_tools import beside_torchvision
from sorites.io.hub import hub, is_out_of_reach, not_fetched
from sorites.io.paths import path_of
from sorites.io.readers import json_file

BATCH = 32


@dataclass(frozen=True, eq=False)
class Encoders:
    """The two encoders of one model, in float32 and ready to be asked; ``spec`` is what they were
    loaded by.
    """

    spec: str
    model: Any
    prepare: Any
    """The library's own transform of a Pillow image."""
    tokens: Any
    """The tokenizer: a list of sentences to a tensor."""

    def images(self, images: Sequence[ImageU8]) -> Features:
        """Encode images with the model's own transform: it crops the centre, and cuts nothing off
        a square.
        """
        import torch
        from PIL import Image

        def encoded(some: Sequence[ImageU8]) -> Any:
            batch = torch.stack([self.prepare(Image.fromarray(image)) for image in some])
            return self.model.encode_image(batch.to(self._device))

        return self._batched(encoded, images)

    def texts(self, sentences: Sequence[str]) -> Features:
        """Encode sentences."""
        return self._batched(
            lambda some: self.model.encode_text(self.tokens(list(some)).to(self._device)), sentences
        )

    @property
    def _device(self) -> Any:
        return next(self.model.parameters()).device

    def _batched(self, encoded: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Features:
        import torch

        if not items:
            raise SoritesError(f"{self.spec}: nothing to look at")
        with torch.inference_mode():
            parts = [
                encoded(items[start : start + BATCH]).float().cpu().numpy()
                for start in range(0, len(items), BATCH)
            ]
        return np.concatenate(parts)

    @functools.cached_property
    def version(self) -> str:
        """A hash of every weight by name."""
        hasher = hashlib.sha256()
        for key, value in self.model.state_dict().items():
            hasher.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
        return hasher.hexdigest()[:32]


def load(kind: str, argument: str | None) -> Encoders:
    """Load NAME@WEIGHTS; ``kind`` says in messages who asks: an encoder or a model."""
    architecture, _, weights = (argument or "").partition("@")
    if not architecture or not weights:
        raise SoritesError(
            f"{kind} open_clip: wanted NAME@WEIGHTS, such as ViT-B-32@openai, got {argument!r}. "
            "Type: open_clip:ViT-B-32@weights.safetensors"
        )
    library = beside_torchvision("open_clip", f"{kind} open_clip", "clip")
    name = _configured(library, architecture)
    try:
        with _silent(), hub():
            model, _, prepare = library.create_model_and_transforms(
                name, pretrained=weights, weights_only=True
            )
            tokens = library.get_tokenizer(name)
    except Exception as error:  # whatever the library, a hub or a file does
        if is_out_of_reach(error):
            instead = f"Give a file: {kind} open_clip:{architecture}@weights.safetensors"
            raise not_fetched(f"the weights of open_clip:{argument}", error, instead) from error
        raise SoritesError(f"{kind} open_clip:{argument} did not load: {error}") from error
    return Encoders(f"{kind} open_clip:{argument}", model.eval().float(), prepare, tokens)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the library's log out: it writes to the root logger, which sets that up, and then raises
    with the same words.
    """

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
    """Return the architecture's name; a config file is first registered with the library under its
    own name.
    """
    if not architecture.endswith(".json"):
        return architecture
    path = path_of(architecture)
    json_file(path, "an open_clip config")
    library.add_model_config(path)
    return path.stem
