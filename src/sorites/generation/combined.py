"""Draw two sliders at once, as a sheet: one down, the other across (Figure 29 of CNS-Bench)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.requests import Drawing, Request
from sorites.diffusion.sampler import sample
from sorites.diffusion.shelf import Concept, Shelf, together
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.generation.pictures import packed
from sorites.generation.train_sliders import PROMPT, Sheet, as_png, enlarged
from sorites.types import Image, to_picture

SHARES = (0.0, 0.5, 1.0)


def combined(
    pipe: Pipe, shelf: Shelf, tops: Sequence[tuple[str, float]], concept: Concept, seed: int, drawing: Drawing,
    prompt: str = PROMPT,
) -> list[list[Image]]:  # fmt: skip
    """Return pictures with two sliders at 0, half and all of their severities, the first down and the second across."""
    if len(tops) != 2 or tops[0][0] == tops[1][0]:
        raise SoritesError(
            f"wanted two different sliders, such as --slider heavy_snow=1.5 --slider cartoon_style=1, got {len(tops)}"
        )
    (first, high), (second, wide) = tops
    places = tuple((a * high, b * wide) for a in SHARES for b in SHARES)
    plain, words = (prompt.replace("{class}", name) for name in (concept.name, pipe.word(concept.name)))
    request = Request(words, seed, together(pipe, shelf, (first, second), concept), places, plain)
    found = sample(pipe, [request], drawing)[0]
    return [found[i : i + len(SHARES)] for i in range(0, len(found), len(SHARES))]


def make_combined(
    pipe: Pipe, shelf: Shelf, tops: Sequence[tuple[str, float]], seeds: Sequence[int], out: Path, drawing: Drawing,
    draw: Sheet, kind: str = "jpg",
) -> list[Path]:  # fmt: skip
    """Write such a sheet for every class and seed, with its pictures beside it; return the sheets."""
    sheets = []
    (first, high), (second, wide) = (tops[0], tops[-1]) if tops else (("", 0.0), ("", 0.0))
    for concept in shelf.concepts:
        for seed in seeds:
            folder = out / f"{first}+{second}" / concept.folder
            page = folder / f"seed_{seed:04d}.png"
            sheets.append(page)
            if page.exists():
                continue
            rows = combined(pipe, shelf, tops, concept, seed, drawing)
            shown = []
            for a, row in zip(SHARES, rows, strict=True):
                for b, image in zip(SHARES, row, strict=True):
                    name = f"seed_{seed:04d}_{first}_{round(a * high * 1000):04d}_{second}_{round(b * wide * 1000):04d}.{kind}"
                    write_bytes(packed(to_picture(image), kind), folder / name)
                shown.append([(enlarged(to_picture(x)), f"{a * high:g}  {b * wide:g}") for b, x in zip(SHARES, row, strict=True)])
            title = f"{concept.name}: {first} down, {second} across"
            write_bytes(as_png(draw(shown, title)), page)
    return sheets
