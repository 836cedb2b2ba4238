"""Settings of a pipeline that save memory: parts that wait on the CPU, and images decoded in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.messages import option

# What waits on the CPU while it is not used: nothing, whole networks, or single layers.
OFFLOADS = ("none", "model", "sequential")


@dataclass(frozen=True)
class Saving:
    """How a pipeline saves memory.

    Attributes:
        offload: ``model`` keeps networks on the CPU while others work, ``sequential`` every layer. Images are
            the same.
        slicing: The autoencoder sees one image at a time. Images are equal up to rounding.
        tiling: The autoencoder sees overlapping tiles of large images. This changes images.
    """

    offload: str = "none"
    slicing: bool = False
    tiling: bool = False

    def __post_init__(self) -> None:
        if self.offload not in OFFLOADS:
            raise SoritesError(f"offload: expected one of {', '.join(OFFLOADS)}, got {self.offload!r}")

    def apply(self, parts: Any, device: str) -> None:
        """Set up a pipeline of diffusers, whose weights are on the CPU if something is to wait there.

        Raises:
            SoritesError: There is no GPU to offload from, or the autoencoder cannot work in pieces.
        """
        for name, wanted in (("slicing", self.slicing), ("tiling", self.tiling)):
            if wanted:
                _enable(parts.vae, name)
        if self.offload == "none":
            return
        if device == "cpu":
            raise SoritesError(
                f"{option('offload', self.offload)} keeps on the CPU what a GPU does not use now; the"
                " device is the CPU"
            )
        if getattr(parts.vae.config, "force_upcast", False):
            import torch

            # Such an autoencoder decodes in 32 bits; its weights cannot be converted once they are elsewhere.
            parts.vae.to(torch.float32)
        if self.offload == "model":
            parts.enable_model_cpu_offload(device=device)
        else:
            parts.enable_sequential_cpu_offload(device=device)


def has_tiles(vae: Any) -> bool:
    """Return whether an autoencoder can work in tiles; small ones (AutoencoderTiny) fail on small images."""
    return type(vae).__name__ == "AutoencoderKL"


def _enable(vae: Any, name: str) -> None:
    if not hasattr(vae, f"use_{name}") or (name == "tiling" and not has_tiles(vae)):
        raise SoritesError(f"the autoencoder {type(vae).__name__} of this pipeline has no {name}")
    getattr(vae, f"enable_{name}")()
