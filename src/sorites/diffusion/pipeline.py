"""Load a pipeline from a folder as diffusers writes it: Stable Diffusion 1.x, 2.x, XL and their
Turbo versions, and DiT.

Nothing is fetched and nothing is unpickled: weights are read from safetensors files on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.torch_tools import beside_torchvision
from sorites.io.paths import reason
from sorites.io.readers import json_file

# The pipelines that are understood, by the name in ``model_index.json``.
KINDS = {"StableDiffusionPipeline": "sd", "StableDiffusionXLPipeline": "sdxl", "DiTPipeline": "dit"}
# The kinds that draw by words; a DiT draws by the number of a class, and only serves as a
# classifier here.
BY_WORDS = ("sd", "sdxl")
WANTED = (
    "a folder that diffusers wrote (pipe.save_pretrained), with model_index.json, unet, vae, text_encoder,"
    " tokenizer, scheduler"
)
# The parts with weights, by kind.
PARTS = {
    "sd": ("unet", "vae", "text_encoder"),
    "sdxl": ("unet", "vae", "text_encoder", "text_encoder_2"),
    "dit": ("transformer", "vae"),
}
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
DTYPES = ("float32", "bfloat16", "float16")
TOY = "toy"


@dataclass(frozen=True, eq=False)
class Pipe:
    """A loaded pipeline. ``parts`` is what diffusers made of the folder; ``version`` is a hash of
    its weights and settings.
    """

    path: Path
    kind: str
    parts: Any
    version: str
    device: str = "cpu"
    busy: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Held while images are drawn: adapters hang on the network itself, so two threads cannot
    draw at once.
    """

    words: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Learnt words by the name of their class: what stands for the class in a prompt."""

    @property
    def network(self) -> Any:
        """Return the network that predicts noise."""
        return self.parts.transformer if self.kind == "dit" else self.parts.unet

    @property
    def factor(self) -> int:
        """Return how many pixels one place of the latents is wide."""
        own = getattr(self.parts, "vae_scale_factor", None)
        return int(own) if own else 2 ** (len(self.parts.vae.config.block_out_channels) - 1)

    @property
    def side(self) -> int:
        """Return the width in pixels of the images that the network was trained on."""
        return int(self.network.config.sample_size) * self.factor

    def word(self, name: str) -> str:
        """Return what stands for a class in a prompt: its learnt word where there is one, else its name."""
        return self.words.get(name, name)


def toy_folder() -> Path:
    """Return the folder of the embedded pipeline, the toy world."""
    return Path(__file__).parent / "toy" / "pipeline"


def load(
    path: str | Path,
    device: str | None = None,
    dtype: str | None = None,
    kinds: tuple[str, ...] = BY_WORDS,
    fresh: bool = False,
) -> Pipe:
    """Load the pipeline in a folder, or the embedded one if the path is ``toy``; a ``fresh`` one
    shares nothing with others.

    It goes to the graphics card where there is one, there in bfloat16 as CNS-Bench was made, and to
    the processor in float32.
    """
    folder = toy_folder() if str(path) == TOY else Path(path)
    if dtype not in (None, *DTYPES):
        raise SoritesError(f"wanted a number type among {', '.join(DTYPES)}, got {dtype!r}")
    beside_torchvision("diffusers", "a diffusion pipeline", "generate")
    import torch

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    number = dtype or ("bfloat16" if where.startswith("cuda") else "float32")
    return (_read if fresh else _loaded)(folder.resolve(), where, number, kinds)


def _read(folder: Path, device: str, dtype: str, kinds: tuple[str, ...]) -> Pipe:
    kind, name = checked(folder, kinds)
    import diffusers
    import torch

    options: dict[str, Any] = {"variant": _variant(folder / PARTS[kind][0])}
    if kind == "sd":
        options.update(
            safety_checker=None, feature_extractor=None, image_encoder=None, requires_safety_checker=False
        )
    try:
        with quiet():
            parts = getattr(diffusers, name).from_pretrained(
                folder, local_files_only=True, use_safetensors=True, **options
            )
            parts = parts.to(device, getattr(torch, dtype))
    except Exception as error:  # a damaged or partial folder makes the libraries raise nearly anything
        raise SoritesError(
            f"cannot load the pipeline in {folder}: {reason(error)}. Wanted {WANTED}"
        ) from error
    for part in PARTS[kind]:
        getattr(parts, part).requires_grad_(False).eval()
    if kind in BY_WORDS and getattr(parts.unet.config, "time_cond_proj_dim", None):
        raise SoritesError(
            f"the pipeline in {folder} was distilled with its guidance inside (LCM): no slider can be trained"
            " on it"
        )
    return Pipe(folder, kind, parts, version_of(folder), device)


_loaded = functools.lru_cache(maxsize=2)(_read)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep bars and notes of the libraries off the screen: what matters of a folder is checked
    before, and said in errors.
    """
    import diffusers
    import transformers

    logs = (diffusers.utils.logging, transformers.utils.logging)
    before = [log.get_verbosity() for log in logs]
    for log in logs:
        log.disable_progress_bar()
        log.set_verbosity_error()
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.set_verbosity(level)
            log.enable_progress_bar()


def checked(folder: Path, kinds: tuple[str, ...] = BY_WORDS) -> tuple[str, str]:
    """Return the kind of a pipeline's folder and its class in diffusers; a folder that is none is refused."""
    if not folder.is_dir():
        raise SoritesError(f"{folder} does not exist or is not a folder. Wanted {WANTED}, or {TOY}")
    index = folder / "model_index.json"
    if not index.is_file():
        raise SoritesError(f"{folder} is no pipeline: it has no model_index.json. Wanted {WANTED}")
    found = json_file(index, "the parts of a pipeline")
    name = found.get("_class_name") if isinstance(found, dict) else None
    if KINDS.get(str(name)) not in kinds:
        known = ", ".join(name for name, kind in KINDS.items() if kind in kinds)
        raise SoritesError(f"{index}: wanted a pipeline among {known}, got {str(name)[:80]!r}")
    kind = KINDS[str(name)]
    wanted = [*PARTS[kind], *(["tokenizer"] if kind in BY_WORDS else []), "scheduler"]
    missing = [part for part in wanted if not (folder / part).is_dir()]
    if missing:
        raise SoritesError(
            f"{folder} is no whole pipeline: it has no folder {', '.join(missing)}. Wanted {WANTED}"
        )
    _refuse_pickles(folder, PARTS[kind])
    return kind, str(name)


def _refuse_pickles(folder: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        if not list((folder / part).glob("*.safetensors")):
            pickles = sorted(path.name for path in (folder / part).iterdir() if path.suffix in PICKLES)
            got = (
                f"only {pickles[0]}, a pickle, which can run any code when it is read"
                if pickles
                else "no weights"
            )
            raise SoritesError(
                f"{folder / part}: wanted weights as .safetensors, got {got}. Fetch the safetensors of that"
                " model, or write them where you trust the file: pipe.save_pretrained(DIR,"
                " safe_serialization=True)"
            )


def _variant(network: Path) -> str | None:
    """Return ``fp16`` where the network's weights are there only in half precision."""
    names = {path.name for path in network.glob("*.safetensors")}
    return "fp16" if names and all(".fp16." in name for name in names) else None


def version_of(folder: Path) -> str:
    """Return a hash of all weights and settings of a pipeline."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".safetensors", ".json", ".txt") and path.is_file()
    )
    states = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _hashed(folder, states)


@functools.lru_cache(maxsize=8)
def _hashed(folder: Path, states: tuple[tuple[Path, int, int], ...]) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for path, size, _ in states:
        whole.update(f"{path.relative_to(folder).as_posix()} {size} ".encode())
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest())
    return whole.hexdigest()
