"""Sliders on disk: adapters that turn one object up, ours and those of the public trainers.

Ours are a folder with ``pytorch_lora_weights.safetensors``, which ``pipe.load_lora_weights(DIR)``
of diffusers reads as well, and ``slider.json`` with everything that they were trained by. Read are
also single files in the layouts of peft and of the concept sliders
(``lora_unet_..._to_q.lora_down.weight`` with ``alpha``), as safetensors, or as torch files that
hold only weights.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.diffusion.pipeline import TOY, Pipe
from sorites.io.files import write_bytes
from sorites.io.paths import reason
from sorites.io.readers import json_file, json_value

# Low-rank adapters on a network, each image of a batch with severities of its own.


# The layers that the published trainer calls noxattn: all but attention to the text and the
# embedding of time.
NOXATTN = re.compile(
    r".*(attn1\.(to_q|to_k|to_v|to_out\.0)|resnets\.\d+\.(conv1|conv2|time_emb_proj|conv_shortcut)|(down|up)samplers\.0\.conv)"
)
XATTN = re.compile(r".*attn2\.(to_q|to_k|to_v|to_out\.0)")
METHODS = {"noxattn": (NOXATTN,), "xattn": (XATTN,), "full": (NOXATTN, XATTN)}

# The two matrices of one layer: down (rank x in) and up (out x rank), the scale of training folded
# into the second.
Low = tuple[Any, Any]


def targets(network: Any, method: str) -> list[str]:
    """Return the names of the layers that a method of training adapts, in the network's order."""
    if method not in METHODS:
        raise SoritesError(f"wanted layers among {', '.join(METHODS)}, got {method!r}")
    names = [
        name for name, _ in network.named_modules() if any(rule.fullmatch(name) for rule in METHODS[method])
    ]
    if not names:
        raise SoritesError(f"this network has no layers to adapt by the method {method}")
    return names


def shapes(layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of down and up for a layer of the network."""
    if hasattr(layer, "kernel_size"):
        return (rank, layer.in_channels, *layer.kernel_size), (layer.out_channels, rank, 1, 1)
    return (rank, layer.in_features), (layer.out_features, rank)


def refuse_others(network: Any, lows: Mapping[str, Low], called: str) -> None:
    """Refuse an adapter that was made for another network, naming the first layer that differs."""
    modules = dict(network.named_modules())
    for name, (down, up) in lows.items():
        layer = modules.get(name)
        if layer is None or not (hasattr(layer, "kernel_size") or hasattr(layer, "in_features")):
            raise SoritesError(
                f"the slider {called} is for another architecture: this network has no layer {name}"
            )
        wanted = shapes(layer, down.shape[0])
        if (tuple(down.shape), tuple(up.shape)) != wanted:
            got = " and ".join(" x ".join(map(str, low.shape)) for low in (down, up))
            need = " and ".join(" x ".join(map(str, shape)) for shape in wanted)
            raise SoritesError(
                f"the slider {called} is for another architecture: layer {name} wants {need}, the slider has"
                f" {got}"
            )


def answer(layer: Any, inputs: Any, down: Any, up: Any, scale: Any) -> Any:
    """Return what an adapter adds to a layer's answer: up(scale * down(inputs)), with scale as
    images x ranks.
    """
    from torch.nn import functional as F

    if hasattr(layer, "kernel_size"):
        low = F.conv2d(inputs, down, None, layer.stride, layer.padding, layer.dilation)
        return F.conv2d(low * scale[:, :, None, None], up)
    low = F.linear(inputs, down)
    return F.linear(low * scale.view(scale.shape[0], *(1,) * (low.ndim - 2), scale.shape[1]), up)


class Dial:
    """The positions of the sliders for each image of the batch; None switches them off."""

    def __init__(self) -> None:
        self.scales: Any = None
        """Images x sliders."""


@contextlib.contextmanager
def attached(network: Any, sliders: Sequence[Mapping[str, Low]]) -> Iterator[Dial]:
    """Attach sliders to a network; what they add is summed, each times its own severity.

    They are removed afterwards.
    """
    import torch

    dial, handles, modules = Dial(), [], dict(network.named_modules())
    like = next(network.parameters())
    for name in dict.fromkeys(name for lows in sliders for name in lows):
        mine = [(place, *lows[name]) for place, lows in enumerate(sliders) if name in lows]
        down = _joined([low for _, low, _ in mine], 0).to(like.device)
        up = _joined([low for _, _, low in mine], 1).to(like.device)
        columns = torch.tensor(
            [place for place, low, _ in mine for _ in range(low.shape[0])], device=like.device
        )
        handles.append(modules[name].register_forward_hook(_adding(dial, down, up, columns)))
    try:
        yield dial
    finally:
        for handle in handles:
            handle.remove()


def _adding(dial: Dial, down: Any, up: Any, columns: Any) -> Any:
    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        if dial.scales is None:
            return output
        given = inputs[0]
        return output + answer(
            layer, given, down.to(given.dtype), up.to(given.dtype), dial.scales[:, columns].to(given.dtype)
        )

    return hook


def _joined(parts: list[Any], dim: int) -> Any:
    """Return matrices side by side; one alone as it is, so that it can be trained."""
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


# The layouts in which public trainers write low-rank adapters, turned into two matrices per layer.


_KEY = re.compile(
    r"(?P<layer>.+?)[._]"
    r"(?P<side>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|lora_linear_layer\.up)"
    r"(?:\.default|\.default_0)?\.weight"
)
_DOWN = ("lora_A", "lora_down", "lora.down", "lora_linear_layer.down")
_PREFIXES = ("base_model.model.", "unet.", "lora_unet_")
_TEXT = ("text_encoder", "lora_te", "te1", "te2")


def lows_of(
    tensors: Mapping[str, Any], header: Mapping[str, str], file: Path, network: Any
) -> dict[str, Low]:
    """Return down and up by layer, with alpha / rank folded into up: an adapter at severity 1 is
    the one that was trained.
    """
    flat = {name.replace(".", "_"): name for name, _ in network.named_modules()}
    alphas, given = _alphas(tensors), _configured(header, file)
    sides: dict[str, dict[bool, Any]] = {}
    for key, tensor in tensors.items():
        if key.endswith(".alpha"):
            continue
        found = _KEY.fullmatch(key)
        if key.startswith(_TEXT):
            raise SoritesError(
                f"{file}: {key} adapts the text encoder; only adapters of the image network (unet) can be"
                " turned"
            )
        if not found:
            raise SoritesError(
                f"{file}: wanted low-rank adapters (lora_A and lora_B, or lora_down and lora_up), got {key!r}"
            )
        sides.setdefault(found["layer"], {})[found["side"] in _DOWN] = tensor
    if not sides:
        raise SoritesError(f"{file}: wanted low-rank adapters of an image network, got no matrices")
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
    """Return the name of a layer in the network; a name that is not there is kept, and refused by a
    later check.
    """
    name = spelled
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    head, _, last = name.rpartition(".processor.")
    if head:
        name = f"{head}.{last.removesuffix('_lora')}"
    name = re.sub(r"\.to_out$", ".to_out.0", name)
    return flat.get(name.replace(".", "_"), name)


def _alphas(tensors: Mapping[str, Any]) -> dict[str, float]:
    return {
        key.removesuffix(".alpha"): float(tensor) for key, tensor in tensors.items() if key.endswith(".alpha")
    }


def _configured(header: Mapping[str, str], file: Path) -> dict[str, float]:
    """Return alpha as the file's header or peft's ``adapter_config.json`` says: under "" for all
    layers, and by layer.
    """
    config: Any = {}
    if "lora_adapter_metadata" in header:
        try:
            config = json_value(header["lora_adapter_metadata"])
        except ValueError as error:
            raise SoritesError(f"{file}: its header cannot be read: {error}") from error
        config = (
            {str(key).removeprefix("unet."): value for key, value in config.items()}
            if isinstance(config, dict)
            else {}
        )
    elif (file.parent / "adapter_config.json").is_file():
        config = json_file(file.parent / "adapter_config.json", "peft's settings of an adapter")
    if not isinstance(config, dict) or not isinstance(config.get("lora_alpha"), int | float):
        return {}
    pattern = config.get("alpha_pattern")
    by_layer = {str(key): float(value) for key, value in pattern.items()} if isinstance(pattern, dict) else {}
    return {"": float(config["lora_alpha"]), **by_layer}


def _shaped(network: Any, layer: str, down: Any, up: Any) -> Low:
    """Return the matrices as the layer wants them: those of a 1 x 1 convolution are often written
    as plain ones.
    """
    module = dict(network.named_modules()).get(layer)
    if module is None:
        return down, up
    wants = 4 if hasattr(module, "kernel_size") else 2
    if wants == 4 and down.ndim == 2:
        return down[:, :, None, None], up[:, :, None, None]
    if wants == 2 and down.ndim == 4 and down.shape[2:] == (1, 1):
        return down[:, :, 0, 0], up[:, :, 0, 0]
    return down, up


WEIGHTS, FACTS = "pytorch_lora_weights.safetensors", "slider.json"
WANTED = f"a slider: a folder with {WEIGHTS}, or a file .safetensors, .pt or .pth of a public trainer"


@dataclass(frozen=True, eq=False)
class Slider:
    """An adapter: the shift that it turns up, for which class if for one, its matrices by layer,
    and how it was trained.
    """

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
        parts += [
            name,
            *(
                digest(part.detach().to(torch.float32).contiguous().cpu().numpy().tobytes().hex())
                for part in low
            ),
        ]
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
    header = {
        "format": "pt",
        "lora_adapter_metadata": json.dumps({f"unet.{key}": value for key, value in config.items()}),
    }
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
            f"{file} is not what {FACTS} beside it describes: it was changed or cut short. Train that slider"
            " again"
        )
    return slider


def _tensors(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(str(file), framework="pt") as opened:
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
                return tensors, dict(opened.metadata() or {})
        import torch

        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file makes the readers raise nearly anything
        raise SoritesError(f"cannot read {file}: {_why(error)}. Wanted {WANTED}") from error
    if not isinstance(found, dict) or not all(hasattr(value, "shape") for value in found.values()):
        raise SoritesError(
            f"{file}: wanted a torch file that holds a table of weights and nothing else. Wanted {WANTED}"
        )
    return found, {}


def _why(error: Exception) -> str:
    said = reason(error)
    return (
        "it holds more than weights, and reading it could run any code"
        if "weights only" in said.lower()
        else said
    )


# A folder of sliders: which classes and shifts it holds, and the pipeline that they were trained on.


_NUMBERED = re.compile(r"(\d{1,4})_(.+)")


@dataclass(frozen=True)
class Concept:
    """A class: its number among the labels, and the words for it."""

    number: int
    name: str

    @property
    def folder(self) -> str:
        """Return the name of its folder, as in CNS-Bench: ``022_bald eagle``."""
        return f"{self.number:03d}_{self.name}"


@dataclass(frozen=True)
class Shelf:
    """Sliders by shift and class: DIR/heavy_snow/022_bald eagle."""

    root: Path
    places: dict[tuple[str, Concept], Path]

    @property
    def shifts(self) -> tuple[str, ...]:
        """Return the folders' names of the shifts."""
        return tuple(dict.fromkeys(shift for shift, _ in self.places))

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """Return the classes, by number."""
        return tuple(sorted({concept for _, concept in self.places}, key=lambda one: one.number))

    @property
    def facts(self) -> dict[str, Any]:
        """Return what is recorded with its first slider: the pipeline, the recipe, how images are drawn."""
        found = json_file(next(iter(self.places.values())) / FACTS, "the facts of a slider")
        return found if isinstance(found, dict) else {}

    def slider(self, pipe: Pipe, shift: str, concept: Concept) -> Slider:
        """Return one slider, checked against the pipeline."""
        if (shift, concept) not in self.places:
            raise SoritesError(f"{self.root} has no slider {shift} for the class {concept.name}")
        return _loaded(self.places[shift, concept], pipe, shift)

    def kept(self, shifts: Iterable[str], classes: Iterable[str]) -> Shelf:
        """Return only some of the shifts and classes."""
        some, only = list(shifts), list(classes)
        for shift in some:
            if shift not in self.shifts:
                raise UnknownName("slider", shift, self.shifts)
        names = {name for concept in self.concepts for name in (concept.name, str(concept.number))}
        for name in only:
            if name not in names:
                raise UnknownName("class with a slider", name, [concept.name for concept in self.concepts])
        places = {
            (shift, concept): path
            for (shift, concept), path in self.places.items()
            if (not some or shift in some)
            and (not only or concept.name in only or str(concept.number) in only)
        }
        return Shelf(self.root, places)


@functools.lru_cache(maxsize=64)
def _loaded(path: Path, pipe: Pipe, shift: str) -> Slider:
    return load(path, pipe.parts.unet, shift)


def shelf(folder: str | Path) -> Shelf:
    """Read which sliders a folder holds, or the embedded ones for ``toy``.

    One without its facts does not count.
    """
    root = Path(__file__).parent / "toy" / "sliders" if str(folder) == TOY else Path(folder)
    if not root.is_dir():
        raise SoritesError(
            f'{root} is not a folder. Wanted the folder of "sorites generate sliders --out DIR"'
        )
    found: dict[tuple[str, Concept], Path] = {}
    for path in sorted(root.glob("*/*")):
        numbered = _NUMBERED.fullmatch(path.name)
        if numbered and (path / FACTS).is_file() and (path / WEIGHTS).is_file():
            found[path.parent.name, Concept(int(numbered[1]), numbered[2])] = path
    if not found:
        raise SoritesError(
            f"{root} holds no finished slider: wanted SHIFT/NUMBER_CLASS/{WEIGHTS} with {FACTS} beside it."
            ' Type the command "sorites generate sliders" that made it again to finish it'
        )
    return Shelf(root, found)


def together(pipe: Pipe, shelf: Shelf, shifts: Sequence[str], concept: Concept) -> tuple[Slider, ...]:
    """Return the sliders of several shifts for one class."""
    return tuple(shelf.slider(pipe, shift, concept) for shift in shifts)
