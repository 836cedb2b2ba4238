"""Image and text encoders of the open_clip library.

The spec is NAME@WEIGHTS: an architecture or a .json config, and a weights file (.safetensors, or a torch file
that contains only tensors) or a pretrained tag of open_clip. Only a tag, an ``hf-hub:`` architecture, or a
tokenizer named in the config uses the network.
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
from sorites.core.compute.arithmetic import exact
from sorites.core.compute.torch_tools import compute_options, device_of, import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.io.hub import download_error, hub, is_unreachable
from sorites.io.paths import path_of
from sorites.io.readers import json_file

BATCH_SIZE = 32


@dataclass(frozen=True, eq=False)
class Encoders:
    """The image and text encoder of one model, in float32; ``spec`` is what they were loaded from."""

    spec: str
    model: Any
    prepare: Any
    """The library's own transform of a Pillow image."""
    tokens: Any
    """The tokenizer: a list of sentences to a tensor."""

    def images(self, images: Sequence[ImageU8]) -> Features:
        """Encode images with the model's own transform, which crops the centre square."""
        import torch
        from PIL import Image

        def encode(chunk: Sequence[ImageU8]) -> Any:
            batch = torch.stack([self.prepare(Image.fromarray(image)) for image in chunk])
            return self.model.encode_image(batch.to(self._device))

        return self._batched(encode, images)

    def texts(self, sentences: Sequence[str]) -> Features:
        """Encode sentences."""
        return self._batched(
            lambda chunk: self.model.encode_text(self.tokens(list(chunk)).to(self._device)), sentences
        )

    @property
    def _device(self) -> Any:
        return next(self.model.parameters()).device

    def _batched(self, encode: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Features:
        import torch

        if not items:
            raise SoritesError(f"{self.spec}: there are no images or texts to encode")
        chunks = [list(items[start : start + BATCH_SIZE]) for start in range(0, len(items), BATCH_SIZE)]
        # Kernels of a GPU depend on the number of rows, so the last chunk is filled up with copies there.
        missing = 0 if self._device.type == "cpu" else -len(items) % BATCH_SIZE
        chunks[-1] += chunks[-1][-1:] * missing
        with torch.inference_mode(), exact(self._device):
            parts = [encode(chunk).float().cpu().numpy() for chunk in chunks]
        return np.concatenate(parts)[: len(items)]

    @functools.cached_property
    def version(self) -> str:
        """Hash of all weights with their names, and of the kind of device unless it is a CPU."""
        hasher = hashlib.sha256(b"" if self._device.type == "cpu" else self._device.type.encode())
        for key, value in self.model.state_dict().items():
            hasher.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
        return hasher.hexdigest()[:32]


def load(kind: str, argument: str | None) -> Encoders:
    """Load NAME@WEIGHTS.

    Args:
        kind: "encoder" or "model", for messages.
        argument: The spec.

    Raises:
        SoritesError: The spec is incomplete, or the weights cannot be loaded.
    """
    architecture, _, weights = (argument or "").partition("@")
    if not architecture or not weights:
        raise SoritesError(
            f"{kind} open_clip: expected NAME@WEIGHTS, such as ViT-B-32@openai, got {argument!r}. "
            "Type: open_clip:ViT-B-32@weights.safetensors"
        )
    library = import_with_torchvision("open_clip", f"{kind} open_clip", "clip")
    name = _register_config(library, architecture)
    try:
        with _silent(), hub():
            model, _, prepare = library.create_model_and_transforms(
                name, pretrained=weights, weights_only=True
            )
            tokens = library.get_tokenizer(name)
    except Exception as error:  # the library, the hub and file readers raise nearly anything
        if is_unreachable(error):
            instead = f"Give a file: {kind} open_clip:{architecture}@weights.safetensors"
            raise download_error(f"the weights of open_clip:{argument}", error, instead) from error
        raise SoritesError(f"{kind} open_clip:{argument} did not load: {error}") from error
    # A model moves to the device later, with its classes.
    device = device_of(compute_options().device) if kind == "encoder" else "cpu"
    return Encoders(f"{kind} open_clip:{argument}", model.eval().float().to(device), prepare, tokens)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress the library's log messages.

    It logs to the root logger, which configures logging as a side effect, and then raises an error with the
    same text.
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


def _register_config(library: Any, architecture: str) -> str:
    """Return the architecture's name; a config file is registered with the library first."""
    if not architecture.endswith(".json"):
        return architecture
    path = path_of(architecture)
    json_file(path, "an open_clip config")
    library.add_model_config(path)
    return path.stem
