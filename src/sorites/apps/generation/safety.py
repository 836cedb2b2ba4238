"""Checkers of finished images: the pipeline's own safety checker, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sorites.core.errors import SoritesError
from sorites.core.samples import ImageU8
from sorites.core.torch_tools import one_thread
from sorites.diffusion.pipeline import Pipe
from sorites.io.paths import reason
from sorites.models.python import found_in

# Says of each image whether it must not be kept.
Checker = Callable[[Sequence[ImageU8]], list[bool]]
WANTED = (
    "own (the safety_checker in the pipeline's folder), or python:module:function (images to True where one"
    " is not kept)"
)


def checker(spec: str | None, pipe: Pipe) -> Checker | None:
    """Return the checker that a spec names; None where none is wanted."""
    if spec is None:
        return None
    kind, _, rest = spec.partition(":")
    if kind == "own" and not rest:
        return _own(pipe)
    module, _, name = rest.partition(":")
    if kind != "python" or not module or not name:
        raise SoritesError(f"--safety: wanted {WANTED}, got {spec!r}")
    return _asked(found_in(module, name), spec)


def _asked(function: Any, spec: str) -> Checker:
    def check(images: Sequence[ImageU8]) -> list[bool]:
        found = [bool(one) for one in function(list(images))]
        if len(found) != len(images):
            raise SoritesError(
                f"{spec}: wanted one answer for each of {len(images)} images, got {len(found)}"
            )
        return found

    return check


def _own(pipe: Pipe) -> Checker:
    folder = pipe.path
    if not (folder / "safety_checker").is_dir() or not (folder / "feature_extractor").is_dir():
        raise SoritesError(
            f"{folder} has no folders safety_checker and feature_extractor. Wanted --safety {WANTED}"
        )
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPImageProcessor

    try:
        judge = StableDiffusionSafetyChecker.from_pretrained(
            folder / "safety_checker", local_files_only=True, use_safetensors=True
        )
        prepare = CLIPImageProcessor.from_pretrained(folder / "feature_extractor", local_files_only=True)
    except Exception as error:  # a damaged folder makes the libraries raise nearly anything
        raise SoritesError(f"cannot load the safety checker in {folder}: {reason(error)}") from error
    judge.eval()

    def check(images: Sequence[ImageU8]) -> list[bool]:
        import torch

        with one_thread(), torch.no_grad():
            seen = prepare(list(images), return_tensors="pt").pixel_values
            flagged = judge(images=np.stack(images).astype(np.float32) / 255, clip_input=seen)[1]
        return [bool(one) for one in flagged]

    return check
