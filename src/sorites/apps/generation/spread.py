"""Work in other processes: an engine, its workers, and how each of them opens the pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from sorites.diffusion.control import with_control
from sorites.diffusion.pipeline import NOTHING_SAVED, Pipe, load
from sorites.diffusion.saving import Saving
from sorites.diffusion.words import with_words
from sorites.evaluation.engines import Engine
from sorites.sources.papers.cns_bench import classes


@dataclass(frozen=True)
class Spread:
    """How to work in other processes: an engine, its workers, and how to open the pipeline."""

    engine: Engine
    workers: int
    open: Callable[[], Pipe]


@functools.lru_cache(maxsize=2)
def open_pipe(
    path: str, device: str | None = None, dtype: str | None = None, words: str | None = None,
    saving: Saving = NOTHING_SAVED, holding: tuple[str, str, float] | None = None,
) -> Pipe:  # fmt: skip
    """Load a pipeline, optionally with a folder of learnt words and a ControlNet; cached per process."""
    pipe = load(path, device, dtype, saving=saving)
    pipe = with_words(pipe, words, classes()) if words else pipe
    return with_control(pipe, *holding) if holding else pipe
