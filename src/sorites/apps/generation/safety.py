"""Safety checkers for generated images: the pipeline's own, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.registry import load_object
from sorites.core.samples import ImageU8
from sorites.io.paths import reason

# Returns for each image whether it must be discarded.
Checker = Callable[[Sequence[ImageU8]], list[bool]]
EXPECTED = (
    "own (the safety_checker in the pipeline's folder), or python:module:function (returns True for images to"
    " discard)"
)


def checker(spec: str | None, folder: Path) -> Checker | None:
    """Return the checker named by a spec, or None for None.

    Args:
        spec: ``own``, or ``python:module:function``.
        folder: The folder of the pipeline, whose checker ``own`` is.
    """
    if spec is None:
        return None
    kind, _, rest = spec.partition(":")
    if kind == "own" and not rest:
        return _builtin_checker(folder)
    if kind != "python":
        raise SoritesError(f"{option('safety', None)} must be {EXPECTED}; got {spec!r}")
    return _user_checker(load_object(option("safety", None), rest), spec)


def _user_checker(function: Any, spec: str) -> Checker:
    def check(images: Sequence[ImageU8]) -> list[bool]:
        flags = [bool(flag) for flag in function(list(images))]
        if len(flags) != len(images):
            raise SoritesError(
                f"{spec}: expected one result for each of {len(images)} images, got {len(flags)}"
            )
        return flags

    return check


def _builtin_checker(folder: Path) -> Checker:
    if not (folder / "safety_checker").is_dir() or not (folder / "feature_extractor").is_dir():
        raise SoritesError(
            f"{folder} has no folders safety_checker and feature_extractor. "
            f"{option('safety', None)} must be {EXPECTED}"
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
            pixel_values = prepare(list(images), return_tensors="pt").pixel_values
            flagged = judge(images=np.stack(images).astype(np.float32) / 255, clip_input=pixel_values)[1]
        return [bool(flag) for flag in flagged]

    return check
