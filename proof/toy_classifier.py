"""The diffusion classifier on the toy world: shape and style as its twelve classes, held against
the plain classifier.

The errors of an image under every class are found once; the answers of fewer draws and of staged
elimination follow from them as they would from passes of their own. All images are new: the
settings of the elimination were chosen on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from tools.toy_world import caption

from proof._lines import Line
from sorites.core import ImageU8, to_uint8
from sorites.core.compute.torch_tools import one_thread
from sorites.diffusion import classify
from sorites.diffusion.classify import ClassifierOptions, staged
from sorites.diffusion.conditions import encode_prompt
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import TOY_DRAWING, Request, sample
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from tools import toy_world as world

CELLS = [(shape, style) for shape in SHAPES for style in STYLES]
EACH, DRAWS = 2, 16
FIRST, FRESH = 9000, 77
"""The first seed of drawn images, and that of real ones: neither was used before."""


def run() -> Iterator[Line]:
    pipe, rng = load("toy"), np.random.default_rng(FRESH)
    cells = [cell for cell in CELLS for _ in range(EACH)]
    asked = [Request(caption(*cell), FIRST + n) for n, cell in enumerate(cells)]
    drawn = [to_uint8(row[0]) for row in sample(pipe, asked, TOY_DRAWING)]
    real = [to_uint8(draw(*cell, rng)) for cell in cells]
    want = np.array([CELLS.index(cell) for cell in cells])
    for name, images in (("drawn", drawn), ("real", real)):
        shape, style = world.opinions([image / np.float32(255) for image in images])
        plain = float((shape.argmax(1) * len(STYLES) + style.argmax(1) == want).mean())
        yield Line(f"{name}: the plain classifier", plain, f"n {len(want)}")
        for loss in ("l1", "l2"):
            yield from _judged(
                f"{name}, {loss}", [_errors(pipe, one, loss) for one in images], want, plain, loss
            )


def _errors(pipe: Pipe, image: ImageU8, loss: str) -> NDArray[np.float64]:
    """Return the errors of all draws under all classes, draws x classes."""
    import torch

    with one_thread(), torch.no_grad():
        words = [encode_prompt(pipe, caption(*cell), "", pipe.side) for cell in CELLS]
        found = classify._error_function(pipe, image, words, ClassifierOptions(draws=DRAWS, loss=loss))
        return found(0, DRAWS, np.arange(len(CELLS)))


def _judged(
    name: str, errors: Sequence[NDArray[np.float64]], want: NDArray[np.int64], plain: float, loss: str
) -> Iterator[Line]:
    curve = [
        float(np.mean([one[:draws].mean(0).argmin() for one in errors] == want))
        for draws in (1, 2, 4, 8, DRAWS)
    ]
    said = f"with 1, 2, 4, 8 draws {', '.join(f'{right:.2f}' for right in curve[:-1])}; n {len(want)}"
    yield Line(f"{name}: right with {DRAWS} draws", curve[-1], said, least=plain - 0.1)
    how = ClassifierOptions(draws=DRAWS, loss=loss)
    found = [
        staged(lambda a, b, alive, one=one: one[a:b][:, alive], range(len(CELLS)), how) for one in errors
    ]
    full = np.array([one.mean(0).argmin() for one in errors])
    agree = float(np.mean([one.logits.argmax() for one in found] == full))
    yield Line(f"{name}: elimination gives the full answer", agree, f"n {len(want)}", least=0.95)
    shares = np.array([one.passes for one in found]) / (DRAWS * len(CELLS))
    spread = 1.96 * shares.std(ddof=1) / len(shares) ** 0.5
    yield Line(
        f"{name}: elimination, share of the passes",
        float(shares.mean()),
        f"+- {spread:.2f}, n {len(want)}",
        most=0.6,
    )
