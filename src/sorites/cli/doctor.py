"""``sorites doctor``: the report of the installation."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from sorites import __version__
from sorites.cli.output import say
from sorites.core.compute.machine import cores
from sorites.core.errors import SoritesError
from sorites.io.files import cache

# What each extra is for.
USES = {
    "torch": "torch models, export to ONNX",
    "lite": "lite0, lite1, lite2",
    "demo": "sorites run demo, sorites passport lite0",
    "timm": "timm:NAME",
    "hf": "hf:DIR, hf:ORG/NAME",
    "lens": "sorites lens import (the ray tracer)",
    "clip": "open_clip:NAME, encoders",
    "train": "sorites train, explain, attack",
    "generate": "sorites generate",
    "collect": "sorites collect",
    "annotate": "sorites annotate",
    "view": "sorites view",
    "studio": "sorites studio",
    "raw": "raw files of cameras",
    "ray": "--engine ray, several machines",
    "remote": "runs and images on S3 and other stores",
    "faiss": "approximate nearest neighbours in sorites distance",
    "ducc": "--option fft=ducc, faster blur",
    "openvino": "openvino:PATH",
    "tflite": "tflite:PATH",
    "umap": "UMAP in sorites view",
    "mlflow": "sorites log --to mlflow",
    "wandb": "sorites log --to wandb",
    "tensorboard": "sorites log --to tensorboard",
}
# Only for work on Sorites itself: make installs them.
HIDDEN = ("dev", "docs", "peers")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def doctor(
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Measure how busy runs keep the GPU, with generated photographs."),
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="SPEC",
            help="With --gpu, measure this model; default: ResNet-50 and lite0. May be repeated.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=1, help="With --gpu, about how long per model.")
    ] = 20.0,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="DIR|toy",
            help="Estimate the memory of drawing with this diffusion pipeline.",
        ),
    ] = None,
    side: Annotated[
        list[int] | None,
        typer.Option(
            "--side",
            metavar="PX",
            min=8,
            max=4096,
            help="With --pipeline, width of images; default: that of training. May be repeated.",
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch",
            metavar="N",
            min=1,
            help="With --pipeline, images per pass; default: 1 and 12. May be repeated.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="With --pipeline, number format of the weights.")
    ] = "bfloat16",
) -> None:
    """Check the installation.

    Prints the installed packages, the missing extras with the commands that
    install them, and the device that models run on. With --gpu it measures
    instead how fast this machine makes and evaluates images. With --pipeline
    it estimates the memory of a diffusion pipeline from its configurations.
    """
    if pipeline is not None:
        _print_memory(pipeline, side or [], batch or [], dtype)
        return
    if not gpu:
        say(report(), nl=False)
        return
    from sorites.evaluation.pipeline.measure import check_device, installed_models

    say("\n".join(_about()))
    for block in _where():
        say(block)
    for spec, rates in check_device(model or installed_models(), seconds=seconds):
        say(f"\n{spec}")
        for line in rates.lines():
            say(f"  {line}")


def _print_memory(pipeline: str, sides: list[int], batches: list[int], dtype: str) -> None:
    """Print the estimated memory of drawing with a pipeline."""
    from sorites.cli.printing import print_frame
    from sorites.core.compute.torch_tools import device_of
    from sorites.diffusion.estimates import memory_table
    from sorites.diffusion.memory import free_bytes
    from sorites.diffusion.sampler import BATCH

    where = device_of(None)
    say(f"estimated memory in GB, {dtype}, guided; none, model and sequential are values of --offload")
    print_frame(memory_table(pipeline, sides, batches or (1, BATCH), dtype))
    say(f"free on {where}: {free_bytes(where) / 1e9:.1f} GB; leave a fifth for what is not counted")


def report() -> str:
    """Return the report of the installation."""
    blocks = [
        _about(),
        ["", "core:", *_core()],
        ["", "extras:", *_extras()],
        ["", "where models run:", *_where()],
    ]
    return "\n".join(line for block in blocks for line in block) + "\n"


def _about() -> list[str]:
    return [
        f"sorites {__version__} in {Path(__file__).parents[1]}",
        (
            f"python {platform.python_version()} ({sys.executable}), {platform.system()}"
            f" {platform.machine()}, {cores()} cores"
        ),
        f"cache {cache()} ({_writable(cache())})",
    ]


def _writable(folder: Path) -> str:
    existing = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    if not os.access(existing, os.W_OK):
        return "not writable: set SORITES_CACHE to another folder"
    return f"writable, {shutil.disk_usage(existing).free / 1e9:.0f} GB free"


def requirements() -> dict[str, list[str]]:
    """Return the required distributions of the core (key ``""``) and of each extra."""
    try:
        lines = metadata.requires("sorites") or []
    except metadata.PackageNotFoundError:
        raise SoritesError(
            "sorites is not installed (it runs from its source). Run: pip install -e ."
        ) from None
    required: dict[str, list[str]] = {"": []}
    for line in lines:
        extra = _EXTRA.search(line)
        required.setdefault(extra[1] if extra else "", []).append(line.split(";")[0].strip())
    return required


def missing(extra: str, required: dict[str, list[str]], seen: frozenset[str] = frozenset()) -> list[str]:
    """Return the distributions of an extra, and of extras it includes, that are not installed."""
    lacking: list[str] = []
    for line in required.get(extra, ()):
        name = _NAME.match(line)
        inner = re.search(r"\[([^\]]+)\]", line)
        if name and name[0].lower() == "sorites" and inner:
            names = [part.strip() for part in inner[1].split(",")]
            for part in names:
                lacking += [] if part in seen else missing(part, required, seen | {extra})
        elif name and installed(name[0]) is None:
            lacking.append(name[0])
    return list(dict.fromkeys(lacking))


def installed(name: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _core() -> Iterator[str]:
    for line in requirements()[""]:
        name = _NAME.match(line)
        if name:
            version = installed(name[0])
            yield f"  {name[0]:<14} {version or 'MISSING: pip install ' + repr(line)}"


def _extras() -> Iterator[str]:
    required = requirements()
    for extra in [name for name in required if name and name not in HIDDEN]:
        lacking = missing(extra, required)
        use = USES.get(extra, "")
        if lacking:
            yield (
                f"  {extra:<11} missing {', '.join(lacking)}{f' (for {use})' if use else ''}."
                f" Run: pip install 'sorites[{extra}]'"
            )
        else:
            yield f"  {extra:<11} installed{': ' + use if use else ''}"


def _where() -> Iterator[str]:
    yield _probe("onnx models", _onnx)
    yield _probe("torch models", _torch)
    if installed("torchvision") is not None:
        yield _probe("torchvision", _torchvision)


def _probe(kind: str, describe: Callable[[], str]) -> str:
    try:
        return f"  {kind:<14} {describe()}"
    except Exception as error:  # importing a broken installation can raise nearly anything
        return (
            f"  {kind:<14} cannot run: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        )


def _onnx() -> str:
    from sorites.models.session import runtime

    onnxruntime = runtime()
    names = [name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()]
    return f"ONNX Runtime {onnxruntime.__version__} with {', '.join(names)}"


def _torch() -> str:
    if installed("torch") is None:
        return "not installed. Run: pip install 'sorites[torch]'"
    import torch

    if torch.cuda.is_available():
        return f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}"
    return f"torch {torch.__version__} on the CPU, exported to ONNX Runtime; no GPU found"


def _torchvision() -> str:
    """Say whether a user's script can import torchvision, and thus timm, and what to type if not."""
    done = subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, timeout=120
    )
    version = str(installed("torchvision"))
    if done.returncode == 0:
        return f"{version} imports"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    plain = version.partition("+")[0]
    return (
        f"{version} does not import: {last}\n"
        "    A plain import of timm or torchvision therefore fails in your own scripts. Sorites declares\n"
        "    the missing operators itself, so its models timm:NAME work. Usual reason: this torchvision\n"
        f"    was built for another torch than {installed('torch')}. Choose your system and CUDA or CPU on\n"
        "    pytorch.org/get-started, and add to the command shown there:\n"
        f"    --force-reinstall --no-deps torchvision=={plain}"
    )
