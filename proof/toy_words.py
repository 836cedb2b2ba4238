"""A class whose look differs from its word, in the toy world: what is called a cross here looks
like a triangle.

Images of the plain prompt show crosses. A word learnt from the real images must bring them
nearer to those (Table 2a).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tools.toy_world import caption

from proof._lines import Line
from sorites import core
from sorites.apps.generation.recipes import TOY_WORDS
from sorites.apps.generation.words import learn_word
from sorites.core import to_uint8
from sorites.core.samples import ImageU8
from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.sampler import TOY_DRAWING, Request, sample
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from sorites.diffusion.words import with_learnt_words
from sorites.measures.distributions import frechet, with_interval

CLASS, LOOK = "cross", "triangle"
COUNT = 24


def run() -> Iterator[Line]:
    rng, pipe = np.random.default_rng(5), load("toy")
    real = [to_uint8(draw(LOOK, STYLES[0], rng)) for _ in range(60)]
    word = learn_word(pipe, CLASS, real, TOY_WORDS, Path(tempfile.mkdtemp()) / "state")
    plain, inverted = (_drawn(one, one.word(CLASS)) for one in (pipe, with_learnt_words(pipe, [word])))
    model = core.model("toy:all")
    known, before, after = (model(images, True) for images in (real, plain, inverted))
    assert known.features is not None
    found = {}
    for name, seen in (("plain prompt", before), ("learnt word", after)):
        assert seen.features is not None
        found[name], low, high = with_interval(frechet, seen.features, known.features)
        yield Line(
            f"{name}: Fréchet distance [toy:all]",
            found[name],
            f"{low:.1f} to {high:.1f}, n {COUNT}, real {len(real)}",
        )
    yield Line(
        "Fréchet distance, learnt word over plain prompt",
        found["learnt word"] / found["plain prompt"],
        most=0.9,
    )
    right = [
        float((out.logits.argmax(1) == SHAPES.index(LOOK)).mean())
        for out in (before, after)
        if out.logits is not None
    ]
    yield Line("accuracy with the plain prompt, of a classifier of real images", right[0], f"n {COUNT}")
    yield Line("accuracy with the learnt word", right[1], f"n {COUNT}")
    yield Line("points gained", 100 * (right[1] - right[0]), least=10)


def _drawn(pipe: Pipe, word: str) -> list[ImageU8]:
    asked = [Request(caption(word), seed, noise=CLASS) for seed in range(1, COUNT + 1)]
    return [to_uint8(row[0]) for row in sample(pipe, asked, TOY_DRAWING)]
