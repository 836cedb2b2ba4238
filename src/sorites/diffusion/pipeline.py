"""Load diffusers pipelines from a folder: Stable Diffusion 1.x, 2.x, XL, Turbo versions, 3.x, FLUX, and DiT.

Nothing is downloaded, nothing is unpickled and no code of the folder is run: weights are read from local
safetensors files, and only known classes of diffusers and transformers are loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.core.compute.torch_tools import compute_options, device_of, import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.diffusion.saving import Saving
from sorites.diffusion.schedulers import allowed_classes, is_flow, refuse_unknown_keys
from sorites.io.paths import FileState, file_states, reason
from sorites.io.readers import json_file

# Supported pipelines by the class name in ``model_index.json``.
KINDS = {
    "StableDiffusionPipeline": "sd",
    "StableDiffusionXLPipeline": "sdxl",
    "StableDiffusion3Pipeline": "sd3",
    "FluxPipeline": "flux",
    "DiTPipeline": "dit",
    "StableDiffusionInstructPix2PixPipeline": "pix2pix",
}
# Kinds that are conditioned on text. A DiT is conditioned on class numbers and only used as a classifier.
BY_WORDS = ("sd", "sdxl", "sd3", "flux")
# The kind that edits photographs by an instruction.
BY_INSTRUCTION = ("pix2pix",)
# Kinds whose network is a transformer; the others have a U-Net.
TRANSFORMERS = ("sd3", "flux", "dit")
EXPECTED = (
    "a folder written by diffusers (pipe.save_pretrained), with model_index.json, unet or transformer, vae,"
    " text_encoder, tokenizer, scheduler"
)
# Components with weights, by kind.
PARTS = {
    "sd": ("unet", "vae", "text_encoder"),
    "sdxl": ("unet", "vae", "text_encoder", "text_encoder_2"),
    "sd3": ("transformer", "vae", "text_encoder", "text_encoder_2"),
    "flux": ("transformer", "vae", "text_encoder", "text_encoder_2"),
    "dit": ("transformer", "vae"),
    "pix2pix": ("unet", "vae", "text_encoder"),
}
# Components with weights that a folder may have or not.
OPTIONAL_PARTS = {"sd3": ("text_encoder_3",)}
# The classes of each component that may be loaded, by library. diffusers imports what ``model_index.json``
# names, which may be any module, so nothing else may stand there.
COMPONENTS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "unet": {"diffusers": frozenset({"UNet2DConditionModel"})},
    "transformer": {"diffusers": frozenset(
            {"Transformer2DModel", "DiTTransformer2DModel", "SD3Transformer2DModel", "FluxTransformer2DModel"}
        )},
    "vae": {"diffusers": frozenset({"AutoencoderKL", "AutoencoderTiny"})},
    "scheduler": {"diffusers": allowed_classes()},
    "text_encoder": {"transformers": frozenset({"CLIPTextModel", "CLIPTextModelWithProjection"})},
    "text_encoder_2": {
        "transformers": frozenset({"CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"})
    },
    "text_encoder_3": {"transformers": frozenset({"T5EncoderModel"})},
    "tokenizer": {"transformers": frozenset({"CLIPTokenizer", "CLIPTokenizerFast", "TokenizersBackend"})},
    "tokenizer_2": {"transformers": frozenset(
            {"CLIPTokenizer", "CLIPTokenizerFast", "T5Tokenizer", "T5TokenizerFast", "TokenizersBackend"}
        )},
    "tokenizer_3": {"transformers": frozenset({"T5Tokenizer", "T5TokenizerFast", "TokenizersBackend"})},
    "image_encoder": {"transformers": frozenset({"CLIPVisionModelWithProjection"})},
    "feature_extractor": {"transformers": frozenset({"CLIPImageProcessor", "CLIPFeatureExtractor"})},
    "safety_checker": {"stable_diffusion": frozenset({"StableDiffusionSafetyChecker"})},
}  # fmt: skip
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
DTYPES = ("float32", "bfloat16", "float16")
TOY = "toy"
NOTHING_SAVED = Saving()


@dataclass(frozen=True, eq=False)
class Pipe:
    """A loaded pipeline.

    Attributes:
        parts: The diffusers pipeline object.
        version: A hash of its weights and configuration.
        device: The torch device that computes.
        dtype: The number format of the weights.
    """

    path: Path
    kind: str
    parts: Any
    version: str
    device: str = "cpu"
    dtype: str = "float32"
    busy: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Lock held while sampling: adapters are attached to the network, so only one thread can use it."""

    words: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Learnt placeholder tokens by class name."""

    word_versions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Hashes of the learnt words by class name."""

    base: str = ""
    """The version without learnt words; empty if there are none."""

    saving: Saving = NOTHING_SAVED
    """How it saves memory."""

    control: Any = field(default=None, repr=False)
    """The ``Control`` that holds a map of images, None if nothing is held."""

    @property
    def name(self) -> str:
        """The name of its folder, or ``toy``: what may be published, unlike the path."""
        return TOY if self.path == toy_folder().resolve() else self.path.name

    @property
    def base_version(self) -> str:
        """The version of the pipeline without learnt words."""
        return self.base or self.version

    @property
    def network(self) -> Any:
        """The network that predicts noise."""
        return self.parts.transformer if self.kind in TRANSFORMERS else self.parts.unet

    @property
    def is_flow(self) -> bool:
        """Whether the network predicts the velocity of a straight flow from noise to image."""
        return is_flow(self.parts.scheduler)

    @property
    def computed(self) -> str:
        """The kind of device, the number format and tiles, which change bits of images; empty for float32
        on a CPU without tiles.
        """
        kind, tiles = self.device.partition(":")[0], " in tiles" if self.saving.tiling else ""
        return "" if (kind, self.dtype, tiles) == ("cpu", "float32", "") else f"{kind} {self.dtype}{tiles}"

    @property
    def factor(self) -> int:
        """The width in pixels of one latent position."""
        own = getattr(self.parts, "vae_scale_factor", None)
        return int(own) if own else 2 ** (len(self.parts.vae.config.block_out_channels) - 1)

    @property
    def side(self) -> int:
        """The image width in pixels that the network was trained on; FLUX pipelines state it themselves."""
        if self.kind == "flux":
            return int(self.parts.default_sample_size) * self.factor
        return int(self.network.config.sample_size) * self.factor

    @property
    def patch(self) -> int:
        """The width in latent positions of what a transformer sees as one; FLUX packs squares of four."""
        if self.kind == "flux":
            return 2
        return int(getattr(self.network.config, "patch_size", None) or 1)

    @property
    def channels(self) -> int:
        """The number of channels of latents."""
        return int(self.network.config.in_channels) // (self.patch**2 if self.kind == "flux" else 1)

    @property
    def has_embedded_guidance(self) -> bool:
        """Whether the network takes the guidance as a number instead of a second, unconditional pass."""
        return self.kind == "flux" and bool(self.network.config.guidance_embeds)

    def positions(self, side: int) -> int:
        """Return the number of positions of an image of some pixels' width that a transformer sees."""
        return (side // self.factor // self.patch) ** 2

    def latent_side(self, side: int) -> int:
        """Return the width in latent positions of an image of some pixels' width; whole patches for FLUX."""
        latents = side // self.factor
        return latents - latents % self.patch if self.kind == "flux" else latents

    def rest(self) -> None:
        """Let all networks wait on the CPU, if they do so between uses."""
        if self.saving.offload == "model":
            self.parts.maybe_free_model_hooks()

    def word(self, name: str) -> str:
        """Return the learnt placeholder of a class, or its name if there is none."""
        return self.words.get(name, name)


def folder_of(path: str | Path) -> Path:
    """Return the folder of a pipeline; ``toy`` is the built-in one."""
    return toy_folder() if str(path) == TOY else Path(path)


def toy_folder() -> Path:
    """Return the folder of the built-in toy pipeline."""
    return Path(__file__).parent / "toy" / "pipeline"


def load(
    path: str | Path,
    device: str | None = None,
    dtype: str | None = None,
    kinds: tuple[str, ...] = BY_WORDS,
    fresh: bool = False,
    saving: Saving = NOTHING_SAVED,
) -> Pipe:
    """Load a pipeline; loaded pipelines are cached.

    Args:
        path: A folder, or ``toy`` for the built-in pipeline.
        device: A torch device; by default that of ``use_compute_options``, or CUDA if available.
        dtype: ``float32``, ``bfloat16`` or ``float16``; by default that of ``use_compute_options``, or
            bfloat16 on CUDA, as in CNS-Bench, and float32 elsewhere.
        kinds: Kinds of pipelines to accept.
        fresh: Load a separate copy instead of using the cache.
        saving: How to save memory.
    """
    folder = folder_of(path)
    if dtype not in (None, *DTYPES):
        raise SoritesError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    import_with_torchvision("diffusers", "a diffusion pipeline", "generate")
    asked = compute_options()
    where = device_of(device or asked.device)
    number = dtype or asked.precision or ("bfloat16" if where.startswith("cuda") else "float32")
    if number not in DTYPES:
        raise SoritesError(f"a diffusion pipeline computes in {', '.join(DTYPES)}, not in {number}")
    return (_read if fresh else _loaded)(folder.resolve(), where, number, kinds, saving)


def _read(folder: Path, device: str, dtype: str, kinds: tuple[str, ...], saving: Saving) -> Pipe:
    kind, name = check_folder(folder, kinds)
    refuse_unknown_keys(folder)
    import diffusers
    import torch

    # Weights are converted while they are read, so that they are in memory once.
    options: dict[str, Any] = {
        "variant": _variant(folder / PARTS[kind][0]),
        "torch_dtype": getattr(torch, dtype),
    }
    if kind in ("sd", "pix2pix"):
        options.update(
            safety_checker=None, feature_extractor=None, image_encoder=None, requires_safety_checker=False
        )
    options.update(dict.fromkeys(_null_components(folder)))
    try:
        with silence_libraries(), warnings.catch_warnings():
            # Newer versions of diffusers call it dtype; older ones do not know that name.
            warnings.filterwarnings("ignore", message="`torch_dtype` is deprecated", category=FutureWarning)
            parts = getattr(diffusers, name).from_pretrained(
                folder, local_files_only=True, use_safetensors=True, **options
            )
            # Components that ignore the option are converted here.
            parts = parts.to("cpu" if saving.offload != "none" else device, getattr(torch, dtype))
    except Exception as error:  # a damaged or partial folder can make the libraries raise anything
        raise SoritesError(
            f"cannot load the pipeline in {folder}: {reason(error)}. Expected {EXPECTED}"
        ) from error
    for part in _present(folder, kind):
        getattr(parts, part).requires_grad_(False).eval()
    if kind not in TRANSFORMERS and getattr(parts.unet.config, "time_cond_proj_dim", None):
        raise SoritesError(
            f"the pipeline in {folder} is guidance-distilled (LCM); sliders cannot be trained on it"
        )
    saving.apply(parts, device)
    return Pipe(folder, kind, parts, version_of(folder), device, dtype, saving=saving)


def load_tokenizer(path: str | Path) -> Any:
    """Load the first tokenizer of a pipeline alone, without its networks.

    Args:
        path: A folder, or ``toy`` for the built-in pipeline.
    """
    folder = folder_of(path)
    check_folder(folder)
    import transformers

    _, name = json_file(folder / "model_index.json", "the components of a pipeline")["tokenizer"]
    try:
        with silence_libraries():
            return getattr(transformers, name).from_pretrained(folder / "tokenizer", local_files_only=True)
    except Exception as error:  # a damaged folder can make the library raise anything
        raise SoritesError(f"cannot load the tokenizer in {folder}: {reason(error)}") from error


def _null_components(folder: Path) -> list[str]:
    """Return the components that a folder says it does not have."""
    content = json_file(folder / "model_index.json", "the components of a pipeline")
    return [name for name, value in content.items() if value == [None, None]]


def _present(folder: Path, kind: str) -> tuple[str, ...]:
    """Return the components with weights that a folder has."""
    optional = OPTIONAL_PARTS.get(kind, ())
    return *PARTS[kind], *(part for part in optional if (folder / part).is_dir())


_loaded = functools.lru_cache(maxsize=2)(_read)


@contextlib.contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress progress bars and log messages of diffusers and transformers."""
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


def check_folder(folder: Path, kinds: tuple[str, ...] = BY_WORDS) -> tuple[str, str]:
    """Return the kind of a pipeline folder and its diffusers class.

    Raises:
        SoritesError: The folder is not a complete pipeline of one of the kinds.
    """
    kind, name = check_index(folder, kinds)
    required = [*PARTS[kind], *(["tokenizer"] if kind != "dit" else []), "scheduler"]
    missing = [part for part in required if not (folder / part).is_dir()]
    if missing:
        raise SoritesError(
            f"{folder} is incomplete: it has no folder {', '.join(missing)}. Expected {EXPECTED}"
        )
    _refuse_pickles(folder, _present(folder, kind))
    return kind, name


def check_index(folder: Path, kinds: tuple[str, ...] = BY_WORDS) -> tuple[str, str]:
    """Return the kind of a pipeline folder and its diffusers class from its index, whatever weights it has.

    Raises:
        SoritesError: There is no index of a pipeline of one of the kinds, or it names an unknown class.
    """
    if not folder.is_dir():
        raise SoritesError(f"{folder} does not exist or is not a folder. Expected {EXPECTED}, or {TOY}")
    index = folder / "model_index.json"
    if not index.is_file():
        raise SoritesError(f"{folder} is not a pipeline: it has no model_index.json. Expected {EXPECTED}")
    content = json_file(index, "the components of a pipeline")
    name = content.get("_class_name") if isinstance(content, dict) else None
    if KINDS.get(str(name)) not in kinds:
        supported = ", ".join(name for name, kind in KINDS.items() if kind in kinds)
        raise SoritesError(f"{index}: expected a pipeline among {supported}, got {str(name)[:80]!r}")
    _refuse_classes(index, content)
    return KINDS[str(name)], str(name)


def kind_of(path: str | Path) -> str:
    """Return the kind of a pipeline folder, or of ``toy``, without loading it."""
    return check_folder(folder_of(path))[0]


def _refuse_classes(index: Path, content: Mapping[str, Any]) -> None:
    """Raise an error if a component is of a class that is not known to be safe to load."""
    for key, value in content.items():
        # Lists are components as (library, class), null if there is none; other values are settings.
        if not isinstance(value, list) or value == [None, None]:
            continue
        allowed = COMPONENTS.get(key, COMPONENTS.get(key.removesuffix("_2"), {}))
        library, name = (str(part) for part in value) if len(value) == 2 else (str(value), "")
        if name not in allowed.get(library, ()):
            expected = " or ".join(
                f"{library} {name}" for library, names in allowed.items() for name in sorted(names)
            )
            raise SoritesError(
                f"{index}: {key[:80]} names {library[:80]} {name[:80]}, which could run code of the folder"
                f" when loaded. Expected {expected or 'no such component'}",
                component=key,
            )


def _refuse_pickles(folder: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        if not list((folder / part).glob("*.safetensors")):
            pickles = sorted(path.name for path in (folder / part).iterdir() if path.suffix in PICKLES)
            got = (
                f"only {pickles[0]}, a pickle, which can run arbitrary code when loaded"
                if pickles
                else "no weights"
            )
            raise SoritesError(
                f"{folder / part}: expected weights as .safetensors, got {got}. Download the safetensors"
                " version of the model, or convert a file you trust: pipe.save_pretrained(DIR,"
                " safe_serialization=True)"
            )


def _variant(network: Path) -> str | None:
    """Return ``fp16`` if the network's weights exist only in half precision."""
    names = {path.name for path in network.glob("*.safetensors")}
    return "fp16" if names and all(".fp16." in name for name in names) else None


def version_of(folder: Path) -> str:
    """Return a hash of all weights and configuration files of a pipeline."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".safetensors", ".json", ".txt") and path.is_file()
    )
    return _hash_files(folder.absolute(), file_states(files))


def why_unreadable(error: Exception) -> str:
    """Return the reason why a weights file cannot be loaded."""
    text = reason(error)
    if "weights only" in text.lower():
        return "it contains more than weights, and loading it could run arbitrary code"
    return text


@functools.lru_cache(maxsize=8)
def _hash_files(folder: Path, states: tuple[FileState, ...]) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for name, size, _ in states:
        path = Path(name)
        whole.update(f"{path.relative_to(folder).as_posix()} {size} ".encode())
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest())
    return whole.hexdigest()
