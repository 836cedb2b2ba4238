"""Schedulers: which steps a sampler takes from noise to an image, for every kind of pipeline folder.

A pipeline's own scheduler is used as its folder describes it, or replaced by another that is built for the
same network. Latents are never clipped by default: the schedulers of diffusers clip unless a configuration
says otherwise, and configurations written for other schedulers do not.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.io.readers import json_file

OWN = "own"


@dataclass(frozen=True)
class Kind:
    """A scheduler of diffusers.

    Attributes:
        name: Its class.
        memory: Attributes that hold one row per image, carried from step to step.
        draws: Whether its steps may draw noise.
    """

    name: str
    memory: tuple[str, ...] = ()
    draws: bool = False


# Schedulers by the name under which they are asked for.
KINDS: Mapping[str, Kind] = {
    "ddim": Kind("DDIMScheduler"),
    "ddpm": Kind("DDPMScheduler", draws=True),
    "euler": Kind("EulerDiscreteScheduler"),
    "euler_ancestral": Kind("EulerAncestralDiscreteScheduler", draws=True),
    "dpm++": Kind("DPMSolverMultistepScheduler", ("model_outputs",), draws=True),
    "unipc": Kind("UniPCMultistepScheduler", ("model_outputs", "last_sample")),
    "pndm": Kind("PNDMScheduler", ("ets", "cur_sample", "cur_model_output")),
    "heun": Kind("HeunDiscreteScheduler", ("prev_derivative", "sample")),
    "lms": Kind("LMSDiscreteScheduler", ("derivatives",)),
}
# Schedulers that are used where they are a pipeline's own, and not offered for others.
ONLY_OWN: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("FlowMatchEulerDiscreteScheduler"),
        Kind("LCMScheduler", draws=True),
        Kind("TCDScheduler", draws=True),
    )
}
# Other schedulers that a folder may name: they describe the same kind of network, which another one samples.
REPLACED = (
    "DEISMultistepScheduler",
    "DPMSolverSinglestepScheduler", "KDPM2DiscreteScheduler", "KDPM2AncestralDiscreteScheduler",
)  # fmt: skip
BY_CLASS: Mapping[str, Kind] = {**{kind.name: kind for kind in KINDS.values()}, **ONLY_OWN}
NAMES = (*KINDS, OWN)
# What a network was trained with. A scheduler that does not know such a key cannot sample the network.
OF_THE_NETWORK: Mapping[str, tuple[Any, ...]] = {
    "prediction_type": ("epsilon",),
    "trained_betas": (None,),
    "rescale_betas_zero_snr": (False, None),
    "timestep_type": ("discrete", None),
}
# Keys of a configuration that say where it comes from; diffusers uses no other that begins with "_".
OF_THE_FILE = frozenset(
    {"_class_name", "_diffusers_version", "_use_default_values", "_name_or_path", "_commit_hash"}
)
UNCLIPPED = {"clip_sample": False, "thresholding": False}


def allowed_classes() -> frozenset[str]:
    """Return the classes of schedulers that a pipeline folder may name."""
    return frozenset({*BY_CLASS, *REPLACED})


def refuse_unknown_keys(folder: Path) -> None:
    """Raise an error if the scheduler's configuration has a key that no scheduler of diffusers knows.

    diffusers ignores such a key, so that a misspelt one, or one of a newer version, would change images
    silently. Keys of other schedulers are usual, and mean nothing to this one.

    Raises:
        SoritesError: The configuration is not readable, or has an unknown key.
    """
    file = folder / "scheduler" / "scheduler_config.json"
    content = json_file(file, "the configuration of a scheduler")
    if not isinstance(content, dict):
        raise SoritesError(f"{file}: expected an object with the keys of a scheduler")
    known = OF_THE_FILE.union(*(_keys(name) for name in allowed_classes()))
    for key in content:
        if key not in known:
            raise UnknownName(f"key of a scheduler in {file}", key, sorted(known))


def is_flow(own: Any) -> bool:
    """Return whether a scheduler is for networks that predict the velocity of a straight flow."""
    return (
        type(own).__name__ == "FlowMatchEulerDiscreteScheduler"
        or own.config.get("prediction_type") == "flow_prediction"
        or bool(own.config.get("use_flow_sigmas"))
    )


def make_scheduler(own: Any, name: str) -> Any:
    """Return a separate scheduler for a network, without its steps.

    Args:
        own: The pipeline's scheduler.
        name: ``own``, or a name of ``KINDS``.

    Raises:
        SoritesError: The scheduler cannot sample this network.
    """
    import diffusers

    config = dict(own.config)
    if name == OWN:
        if type(own).__name__ not in BY_CLASS:
            raise SoritesError(
                f"the pipeline's scheduler {type(own).__name__} is not supported; use"
                f" {option('scheduler', 'NAME')} with one of {', '.join(KINDS)}"
            )
        missing = {key: value for key, value in UNCLIPPED.items() if key not in config}
        return type(own).from_config(config, **_known(type(own).__name__, missing))
    if name not in KINDS:
        raise UnknownName("scheduler", name, NAMES)
    if is_flow(own) or type(own).__name__ in ONLY_OWN:
        raise SoritesError(
            f"the pipeline's scheduler {type(own).__name__} belongs to its network, which {name} cannot"
            f" sample; use {option('scheduler', OWN)}"
        )
    kind = KINDS[name]
    _refuse_lost_keys(config, kind)
    try:
        return getattr(diffusers, kind.name).from_config(config, **_known(kind.name, UNCLIPPED))
    except (RuntimeError, ValueError) as error:
        raise SoritesError(
            f"the scheduler {name} cannot be made from the pipeline's {type(own).__name__}: {error}"
        ) from error


def _refuse_lost_keys(config: Mapping[str, Any], kind: Kind) -> None:
    known = _keys(kind.name)
    for key, plain in OF_THE_NETWORK.items():
        if key in config and key not in known and config[key] not in plain:
            raise SoritesError(
                f"the network was trained with {key} {str(config[key])[:60]!r}, which {kind.name} does not"
                f" know; use {option('scheduler', OWN)} or another scheduler"
            )


def _keys(name: str) -> frozenset[str]:
    import diffusers

    return frozenset(inspect.signature(getattr(diffusers, name).__init__).parameters) - {"self"}


def _known(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose keys a scheduler knows; others would only be recorded."""
    return {key: value for key, value in values.items() if key in _keys(name)}


def set_steps(scheduler: Any, steps: int, device: str, positions: int, even: bool = False) -> Any:
    """Set the noise steps of a scheduler and return it.

    Args:
        scheduler: The scheduler.
        steps: Number of steps.
        device: The torch device that computes.
        positions: Number of positions that a transformer sees, for schedules that depend on the size of
            images.
        even: Spread the noise levels of a flow evenly from 1 to 1 / steps before they are shifted, as FLUX
            does, instead of to the smallest level of training.
    """
    config, shift = scheduler.config, dict[str, Any]()
    if config.get("use_dynamic_shifting"):
        shift["mu"] = _size_shift(config, positions)
    if even and not config.get("use_flow_sigmas"):
        shift["sigmas"] = [float(level) for level in np.linspace(1.0, 1 / steps, steps)]
    with warnings.catch_warnings():
        # Converting tensors to arrays inside diffusers, which newer versions of NumPy deprecate.
        warnings.filterwarnings("ignore", message="__array__ implementation", category=DeprecationWarning)
        scheduler.set_timesteps(steps, device=device, **shift)
    return scheduler


def _size_shift(config: Mapping[str, Any], positions: int) -> float:
    """Return the shift of a flow's noise steps for an image of some positions: linear between two sizes."""
    low, high = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    base, top = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
    return float(base + (top - base) * (positions - low) / (high - low))


def copied(scheduler: Any, indices: Sequence[int]) -> Any:
    """Return a copy of a scheduler that goes on with some of its images.

    Args:
        scheduler: The scheduler, after steps with several images.
        indices: The images to go on with, by index.
    """
    copy_ = copy.deepcopy(scheduler)
    for name in BY_CLASS[type(scheduler).__name__].memory:
        value = getattr(copy_, name, None)
        if isinstance(value, list):
            setattr(copy_, name, [_rows(part, indices) for part in value])
        else:
            setattr(copy_, name, _rows(value, indices))
    return copy_


def _rows(value: Any, indices: Sequence[int]) -> Any:
    return value[list(indices)] if hasattr(value, "ndim") and value.ndim else value


def step(scheduler: Any, out: Any, time: Any, latents: Any, generators: Sequence[Any]) -> Any:
    """Return the latents after one step; each image draws from its own generator where noise is needed."""
    options = {"generator": list(generators)} if BY_CLASS[type(scheduler).__name__].draws else {}
    return scheduler.step(out, time, latents, return_dict=False, **options)[0]
