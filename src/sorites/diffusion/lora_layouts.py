"""The layouts in which public trainers write low-rank adapters, turned into two matrices per layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sorites.diffusion.layers import Low
from sorites.errors import SoritesError
from sorites.reading.texts import json_file, json_value

_KEY = re.compile(
    r"(?P<layer>.+?)[._]"
    r"(?P<side>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|lora_linear_layer\.up)"
    r"(?:\.default|\.default_0)?\.weight"
)
_DOWN = ("lora_A", "lora_down", "lora.down", "lora_linear_layer.down")
_PREFIXES = ("base_model.model.", "unet.", "lora_unet_")
_TEXT = ("text_encoder", "lora_te", "te1", "te2")


def lows_of(tensors: Mapping[str, Any], header: Mapping[str, str], file: Path, network: Any) -> dict[str, Low]:
    """Return down and up by layer, with alpha / rank folded into up: an adapter at severity 1 is the one that was trained."""
    flat = {name.replace(".", "_"): name for name, _ in network.named_modules()}
    alphas, given = _alphas(tensors), _configured(header, file)
    sides: dict[str, dict[bool, Any]] = {}
    for key, tensor in tensors.items():
        if key.endswith(".alpha"):
            continue
        found = _KEY.fullmatch(key)
        if key.startswith(_TEXT):
            raise SoritesError(
                f"{file}: {key} adapts the text encoder; only adapters of the picture network (unet) can be turned"
            )
        if not found:
            raise SoritesError(f"{file}: wanted low-rank adapters (lora_A and lora_B, or lora_down and lora_up), got {key!r}")
        sides.setdefault(found["layer"], {})[found["side"] in _DOWN] = tensor
    if not sides:
        raise SoritesError(f"{file}: wanted low-rank adapters of a picture network, got no matrices")
    lows = {}
    for spelled, pair in sides.items():
        if len(pair) < 2:
            raise SoritesError(f"{file}: the layer {spelled} has only one of its two matrices")
        layer = _plain(spelled, flat)
        down, up = pair[True].float(), pair[False].float()
        alpha = alphas.get(spelled, given.get(layer, given.get("", float(down.shape[0]))))
        lows[layer] = _shaped(network, layer, down, up * (alpha / down.shape[0]))
    return lows


def _plain(spelled: str, flat: Mapping[str, str]) -> str:
    """Return the name of a layer in the network; a name that is not there is kept, and refused by a later check."""
    name = spelled
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    head, _, last = name.rpartition(".processor.")
    if head:
        name = f"{head}.{last.removesuffix('_lora')}"
    name = re.sub(r"\.to_out$", ".to_out.0", name)
    return flat.get(name.replace(".", "_"), name)


def _alphas(tensors: Mapping[str, Any]) -> dict[str, float]:
    return {key.removesuffix(".alpha"): float(tensor) for key, tensor in tensors.items() if key.endswith(".alpha")}


def _configured(header: Mapping[str, str], file: Path) -> dict[str, float]:
    """Return alpha as the file's header or peft's ``adapter_config.json`` says: under "" for all layers, and by layer."""
    config: Any = {}
    if "lora_adapter_metadata" in header:
        try:
            config = json_value(header["lora_adapter_metadata"])
        except ValueError as error:
            raise SoritesError(f"{file}: its header cannot be read: {error}") from error
        config = {str(key).removeprefix("unet."): value for key, value in config.items()} if isinstance(config, dict) else {}
    elif (file.parent / "adapter_config.json").is_file():
        config = json_file(file.parent / "adapter_config.json", "peft's settings of an adapter")
    if not isinstance(config, dict) or not isinstance(config.get("lora_alpha"), int | float):
        return {}
    pattern = config.get("alpha_pattern")
    by_layer = {str(key): float(value) for key, value in pattern.items()} if isinstance(pattern, dict) else {}
    return {"": float(config["lora_alpha"]), **by_layer}


def _shaped(network: Any, layer: str, down: Any, up: Any) -> Low:
    """Return the matrices as the layer wants them: those of a 1 x 1 convolution are often written as plain ones."""
    module = dict(network.named_modules()).get(layer)
    if module is None:
        return down, up
    wants = 4 if hasattr(module, "kernel_size") else 2
    if wants == 4 and down.ndim == 2:
        return down[:, :, None, None], up[:, :, None, None]
    if wants == 2 and down.ndim == 4 and down.shape[2:] == (1, 1):
        return down[:, :, 0, 0], up[:, :, 0, 0]
    return down, up
