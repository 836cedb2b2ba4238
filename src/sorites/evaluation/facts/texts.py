"""Distances of texts to in-distribution images, by which IS-OOD sorts its prompts before generating
images.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sorites import core
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, open_labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import write
from sorites.evaluation.facts import decomposition as decompositions
from sorites.evaluation.facts.rulers import HALVES, Distances, levels_by, rows_of, ruler
from sorites.io.readers import lines
from sorites.io.stores import to_path
from sorites.suites.suite import Distance


def distance_of_texts(
    texts: Iterable[str], how: Distance, labels: Labels | None = None, bar: Bar | None = None
) -> Distances:
    """Measure the distances of texts to the in-distribution *images*, with levels; rows are keyed by
    ``text``.

    IS-OOD sorts its prompts this way before it generates images (Syn-IS, section 2.3). Texts are
    farther from images than images are, so levels are chosen from the distances of the texts unless
    ``how`` sets the edges.
    """
    sentences = list(texts)
    if not sentences:
        raise SoritesError("there are no texts to measure")
    against = ruler(how, labels, bar)
    tick = bar("measuring", len(sentences)) if bar else lambda n: None
    parts = [
        against.distances(text_features)
        for text_features in decompositions.text_features(against.encoder, sentences, tick)
    ]
    distances = {half: np.concatenate([part[half] for part in parts]) for half in HALVES}
    return levels_by(against, rows_of("text", sentences, distances), how)


def distance_of_file(
    file: str | Path,
    how: Distance,
    labels: str | None = None,
    out: str | Path = "distance.parquet",
    bar: Bar | None = None,
) -> Distances:
    """Measure the texts of a file, one per line, and write their rows to ``out``."""
    sentences = lines(Path(file), f"{option('texts', None)} as UTF-8 text with one text per line")
    space = labels_of(labels) if labels else open_labels(core.encoder(how.encoder).labels)
    measured = distance_of_texts([line.strip() for line in sentences if line.strip()], how, space, bar)
    write(measured.rows, to_path(out))
    return measured.having(path=str(out))
