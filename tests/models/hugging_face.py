"""Tiny transformers models with random weights, saved by ``save_pretrained``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sorites.core.compute.torch_tools import import_with_torchvision

NAMES = ("apple", "pear", "plum", "fig")
_SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: i for i, name in enumerate(NAMES)},
}


def library() -> Any:
    """Return transformers, without its progress bars."""
    transformers = import_with_torchvision("transformers", "the test", "hf")
    transformers.utils.logging.disable_progress_bar()
    return transformers


def classifier(folder: Path, **more: Any) -> Path:
    """Save a ViT of 32 px with a processor that has its own mean and std."""
    import torch

    transformers = library()
    torch.manual_seed(0)
    config = transformers.ViTConfig(**{**_SMALL, "image_size": 32, "patch_size": 8, **more})
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    processor = transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.25]
    )
    processor.save_pretrained(folder)
    return folder


def detector(folder: Path) -> Path:
    """Save a YOLOS with five queries."""
    import torch

    transformers = library()
    torch.manual_seed(0)
    config = transformers.YolosConfig(
        **_SMALL, image_size=[64, 64], patch_size=16, num_detection_tokens=5, initializer_range=0.5
    )
    transformers.YolosForObjectDetection(config).save_pretrained(folder)
    processor = transformers.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    processor.save_pretrained(folder)
    return folder
