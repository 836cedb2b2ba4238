"""Kernels as files for other programs: a plain array, the published torch tensor, or a torch module."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import InvalidOption, MissingExtra
from sorites.core.messages import option
from sorites.io.files import check_writable, write_bytes
from sorites.optics.convolve import Padding

Form = Literal["tensor", "module"]


def export_kernels(
    kernels: NDArray[np.float32], out: Path, form: str = "tensor", padding: str = "zeros"
) -> Path:
    """Write kernels to a file that needs no Sorites.

    Args:
        kernels: ... x 3 x y x x, as they are cross-correlated with an image.
        out: A ``.npy`` file, or a ``.pt`` file for torch.
        form: ``tensor`` writes the array as it is; ``module`` writes a TorchScript module whose call
            ``(images, which)`` blurs N x 3 x H x W images with one kernel each, numbered over all leading
            dimensions.
        padding: Values beyond the border that the module uses.
    """
    if form not in get_args(Form) or padding not in get_args(Padding):
        raise InvalidOption(
            "form", f"expected tensor or module, and zeros or reflect; got {form!r} and {padding!r}"
        )
    check_writable(out)
    if out.suffix.lower() == ".npy" and form == "tensor":
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(kernels, np.float32))
        write_bytes(buffer.getvalue(), out)
        return out
    if out.suffix.lower() not in (".pt", ".pth"):
        raise InvalidOption(
            "out", f"{option('out', None)}: expected a .pt file (or .npy for arrays), got {out}"
        )
    torch = _torch()
    tensor = torch.from_numpy(np.array(kernels, np.float32))
    buffer = io.BytesIO()
    if form == "tensor":
        torch.save(tensor, buffer)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is announced to be replaced
            torch.jit.save(torch.jit.script(_module(tensor, padding)), buffer)
    write_bytes(buffer.getvalue(), out)
    return out


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("writing kernels for torch", "torch") from None
    return torch


def _module(taps: Any, padding: str) -> Any:
    from sorites.training.augment.blur import Blur

    return Blur(taps.reshape(-1, *taps.shape[-3:]), padding == "reflect")
