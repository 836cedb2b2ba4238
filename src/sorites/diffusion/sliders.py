"""Sliders on disk: adapters that turn one thing up, ours and those of the public trainers.

Ours are a folder with ``pytorch_lora_weights.safetensors``, which ``pipe.load_lora_weights(DIR)`` of diffusers reads as well, and
``slider.json`` with everything that they were trained by. Read are also single files in the layouts of peft and of the concept
sliders (``lora_unet_..._to_q.lora_down.weight`` with ``alpha``), as safetensors, or as torch files that hold only weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.diffusion.layers import Low, refuse_others
from sorites.diffusion.lora_layouts import lows_of
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.reading.places import reason
from sorites.reading.texts import json_file
from sorites.rng import digest

WEIGHTS, FACTS = "pytorch_lora_weights.safetensors", "slider.json"
WANTED = f"a slider: a folder with {WEIGHTS}, or a file .safetensors, .pt or .pth of a public trainer"


@dataclass(frozen=True, eq=False)
class Slider:
    """An adapter: the shift that it turns up, for which class if for one, its matrices by layer, and how it was trained."""

    shift: str
    lows: Mapping[str, Low] = field(repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    """A hash of its matrices."""

    @property
    def concept(self) -> str:
        """Return the class that it was trained for; empty where none is recorded."""
        return str(self.facts.get("class", ""))


def made(shift: str, lows: Mapping[str, Low], facts: Mapping[str, Any]) -> Slider:
    """Return a slider with the hash of its matrices."""
    import torch

    parts: list[object] = []
    for name, low in sorted(lows.items()):
        parts += [name, *(digest(part.detach().to(torch.float32).contiguous().cpu().numpy().tobytes().hex()) for part in low)]
    return Slider(shift, dict(lows), dict(facts), digest(*parts, size=8).hex())


def save(slider: Slider, folder: Path, half: bool = False) -> None:
    """Write a slider; its facts come last, and a folder without them is not read as finished."""
    import torch
    from safetensors.torch import save as packed

    number = torch.float16 if half else torch.float32
    tensors, rank = {}, 1
    for name, (down, up) in slider.lows.items():
        tensors[f"unet.{name}.lora_A.weight"] = down.detach().to(number).cpu().contiguous()
        tensors[f"unet.{name}.lora_B.weight"] = up.detach().to(number).cpu().contiguous()
        rank = int(down.shape[0])
    config = {"r": rank, "lora_alpha": rank, "target_modules": sorted(slider.lows)}
    header = {"format": "pt", "lora_adapter_metadata": json.dumps({f"unet.{key}": value for key, value in config.items()})}
    write_bytes(packed(tensors, metadata=header), folder / WEIGHTS)
    kept = made(slider.shift, {name: _halved(low, number) for name, low in slider.lows.items()}, slider.facts)
    facts = {**slider.facts, "shift": slider.shift, "version": kept.version}
    facts.pop("file", None)
    write_bytes((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode(), folder / FACTS)


def _halved(low: Low, number: Any) -> Low:
    return low[0].detach().to(number), low[1].detach().to(number)


def load(path: str | Path, network: Any, shift: str = "") -> Slider:
    """Read a slider and check that it fits the network; ``shift`` names one whose file does not say."""
    place = Path(path)
    file = place / WEIGHTS if place.is_dir() else place
    if not file.is_file():
        raise SoritesError(f"{place} holds no slider. Wanted {WANTED}")
    facts = json_file(file.parent / FACTS, "the facts of a slider") if (file.parent / FACTS).is_file() else {}
    if not isinstance(facts, dict):
        raise SoritesError(f"{file.parent / FACTS}: wanted an object {{...}}, got {type(facts).__name__}")
    tensors, header = _tensors(file)
    lows = lows_of(tensors, header, file, network)
    refuse_others(network, lows, str(place))
    slider = made(shift or str(facts.get("shift") or file.stem), lows, {"file": str(file), **facts})
    if "version" in facts and facts["version"] != slider.version:
        raise SoritesError(
            f"{file} is not what {FACTS} beside it describes: it was changed or cut short. Train that slider again"
        )
    return slider


def _tensors(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(str(file), framework="pt") as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}, dict(opened.metadata() or {})  # noqa: SIM118
        import torch

        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file makes the readers raise nearly anything
        raise SoritesError(f"cannot read {file}: {_why(error)}. Wanted {WANTED}") from error
    if not isinstance(found, dict) or not all(hasattr(value, "shape") for value in found.values()):
        raise SoritesError(f"{file}: wanted a torch file that holds a table of weights and nothing else. Wanted {WANTED}")
    return found, {}


def _why(error: Exception) -> str:
    said = reason(error)
    return "it holds more than weights, and reading it could run any code" if "weights only" in said.lower() else said
