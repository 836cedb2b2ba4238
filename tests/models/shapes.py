"""Coloured shapes as images, and a tiny pair of encoders of open_clip taught on them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from zlib import crc32

import numpy as np
from PIL import Image, ImageDraw

from sorites.core import ImageU8
from sorites.core.compute.torch_tools import import_with_torchvision, one_thread

COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 70, 230)}
SHAPES = ("disc", "bar", "ring")
CLASSES = tuple(f"{colour} {shape}" for colour, shape in product(COLOURS, SHAPES))
WAYS = ("a photo of a {}", "a picture of a {}.", "the {}")
CONFIG = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def drawn(name: str, number: int) -> ImageU8:
    """One image of a class: the shape somewhere on noise, of any size."""
    rng = np.random.default_rng(crc32(f"{name} {number}".encode()))
    image = Image.fromarray(rng.integers(60, 160, (32, 32, 3), np.uint8))
    colour, shape = name.split()
    x, y, r = *(int(v) for v in rng.integers(14, 19, 2)), int(rng.integers(9, 13))
    draw, fill = ImageDraw.Draw(image), COLOURS[colour]
    if shape == "disc":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)
    elif shape == "ring":
        draw.ellipse((x - r, y - r, x + r, y + r), outline=fill, width=2)
    else:
        draw.rectangle((x - r, y - 3, x + r, y + 3), fill=fill)
    return np.asarray(image)


def taught(folder: Path, steps: int = 200) -> str:
    """Teach a pair and write its config and weights; return what follows ``open_clip:`` to load them."""
    with one_thread():
        return _taught(folder, steps)


def _taught(folder: Path, steps: int) -> str:
    library = import_with_torchvision("open_clip", "these tests", "clip")
    import torch
    from safetensors.torch import save_file

    (folder / "tiny-shapes.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    library.add_model_config(folder / "tiny-shapes.json")
    torch.manual_seed(0)
    model = library.create_model("tiny-shapes").train()
    tokens = library.get_tokenizer("tiny-shapes")
    texts = [tokens([way.format(name) for name in CLASSES]) for way in WAYS]
    images = np.stack([drawn(name, i) for i in range(120) for name in CLASSES])
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (model.visual.image_mean, model.visual.image_std))
    ready = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std
    model.token_embedding.requires_grad_(False).weight.mul_(50)  # texts then differ from the start
    learnt = [weights for weights in model.parameters() if weights.requires_grad]
    descent = torch.optim.AdamW(learnt, lr=2e-3, weight_decay=0.01)
    for step in range(steps):
        some = torch.randint(len(ready), (72,))
        logits, _ = model.get_logits(ready[some], texts[step % len(WAYS)])
        loss = torch.nn.functional.cross_entropy(logits, some % len(CLASSES))
        descent.zero_grad()
        loss.backward()
        descent.step()
    weights = {key: value.detach().contiguous() for key, value in model.eval().state_dict().items()}
    save_file(weights, folder / "weights.safetensors")
    torch.save(weights, folder / "weights.pt")
    return f"{folder / 'tiny-shapes.json'}@{folder / 'weights.safetensors'}"
