"""The diffusion classifier on the toy world: shape and style as its twelve classes, held against the plain classifier.

One matrix of errors per picture gives the accuracy over the number of draws; staged elimination is asked on its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from proof._lines import Line
from sorites.core import to_picture
from sorites.diffusion.classify import Judging, judged
from sorites.diffusion.pipeline import load
from sorites.diffusion.prompts import encoded
from sorites.diffusion.requests import TOY_DRAWING, Request
from sorites.diffusion.sampler import sample
from sorites.diffusion.toy import judge
from sorites.diffusion.toy.pictures import SHAPES, STYLES, caption

CELLS = [(shape, style) for shape in range(len(SHAPES)) for style in range(len(STYLES))]
EACH, DRAWS = 2, 16


def run() -> Iterator[Line]:
    pipe = load("toy")
    cells = [cell for cell in CELLS for _ in range(EACH)]
    asked = [Request(caption(SHAPES[a], STYLES[b]), 500 + n) for n, (a, b) in enumerate(cells)]
    images = [row[0] for row in sample(pipe, asked, TOY_DRAWING)]
    shape, style = judge.opinions(images)
    want = np.array([CELLS.index(cell) for cell in cells])
    plain = float((shape.argmax(1) * len(STYLES) + style.argmax(1) == want).mean())
    yield Line("plain classifier: shape and style right", plain, f"n {len(want)}")
    words = [encoded(pipe, caption(SHAPES[a], STYLES[b]), "", pipe.side) for a, b in CELLS]
    for loss in ("l1", "l2"):
        full = {}
        for draws in (1, 2, 4, 8, DRAWS):
            how = Judging(draws=draws, loss=loss, sure=0)
            full[draws] = np.array([judged(pipe, to_picture(image), words, range(12), how).logits.argmax() for image in images])
            right = float((full[draws] == want).mean())
            yield Line(
                f"diffusion classifier, {loss}, {draws} draws", right, f"n {len(want)}", plain - 0.1 if draws == DRAWS else None
            )
        how = Judging(draws=DRAWS, loss=loss)
        found = [judged(pipe, to_picture(image), words, range(12), how) for image in images]
        agree = float(np.mean([one.logits.argmax() == whole for one, whole in zip(found, full[DRAWS], strict=True)]))
        yield Line(f"staged elimination, {loss}: the full answer", agree, f"n {len(want)}", least=0.95)
        passes = float(np.mean([one.passes for one in found])) / (DRAWS * len(CELLS))
        yield Line(f"staged elimination, {loss}: share of the passes", passes, most=0.6)
