"""Every scorer on outputs that a head makes of features, and those that look inside a network on a
real one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import SCORERS, Model, Outputs
from tools.net.hashes import Entry, of_array, of_plain
from tools.net.home import Task
from tools.net.images import scene

CLASSES, WIDE = 6, 40
Array = NDArray[np.float32]
MORE = (
    "msp(temperature=2.5)", "energy(temperature=2.5)", "gen(gamma=0.3, top=4)", "gradnorm(temperature=2.0)",
    "knn(k=7)", "knn(k=3, bank=100)", "nnguide(k=5, bank=90)", "vim(dim=12)", "nci(alpha=0.01)",
    "react(percentile=75)", "dice(percentile=60)", "scale(percentile=60)",
    "ash_b(percentile=60)", "ash_p(percentile=60)", "ash_s(percentile=60)",
)  # fmt: skip
INSIDE = (
    "odin(temperature=1.0, eps=0.003)", "rankfeat(blocks=1)", "rankfeat(temperature=2.0)", "gram(powers=2, held=0.4)",
)  # fmt: skip
"""Other parameters than the defaults, of scorers that see outputs and of those that look inside."""


def tasks() -> list[Task]:
    plain = [name for name in SCORERS.names() if not looks(name)]
    inside = [name for name in SCORERS.names() if looks(name)]
    seen = [Task((f"scorers/{spec}",), functools.partial(on_outputs, spec)) for spec in (*plain, *MORE)]
    within = [Task((f"scorers/{spec}",), functools.partial(on_network, spec)) for spec in (*inside, *INSIDE)]
    return [*seen, *within, Task(("scorers/of many",), of_many)]


def looks(name: str) -> bool:
    """Whether a scorer looks inside the model."""
    return bool({"gradient", "maps", "layers"} & set(getattr(SCORERS.get(name), "needs", ())))


def batches() -> tuple[tuple[Array, Array], list[tuple[Outputs, NDArray[np.int64]]], Outputs]:
    """A head, training outputs with labels in uneven batches, and outputs to be judged: classes,
    dead units, no activation below 0, and logits that are the head's.
    """
    rng = np.random.default_rng(11)
    centres = rng.normal(0, 1.2, (CLASSES, WIDE))
    mixing = rng.normal(0, 0.25, (WIDE, WIDE))
    head = (
        (centres + rng.normal(0, 0.2, centres.shape)).astype(np.float32) * 0.3,
        rng.normal(0, 0.3, CLASSES).astype(np.float32),
    )
    labels = np.arange(400) % CLASSES

    def made(means: NDArray[np.float64], named: str) -> Outputs:
        features = np.maximum(means + rng.normal(size=means.shape) @ mixing, 0).astype(np.float32)
        ids = [f"{named}{i}" for i in range(len(features))]
        return Outputs((features @ head[0].T + head[1]).astype(np.float32), features, ids=ids)

    training = [
        (made(centres[labels[i : i + 37]], f"{i}/"), labels[i : i + 37]) for i in range(0, len(labels), 37)
    ]
    asked = np.concatenate([centres[labels[:40]], rng.normal(0, 1.2, (40, WIDE))])
    return head, training, made(asked, "asked/")


def on_outputs(spec: str) -> Iterator[Entry]:
    head, training, asked = batches()
    scorer: Any = core.scorer(spec)
    if hasattr(scorer, "fit"):
        scorer.fit(training, head)
    if told := getattr(scorer, "fitted", None):
        yield f"scorers/{spec}/fitted", of_plain(told)
    yield f"scorers/{spec}/scores", of_array(scorer(asked))


@functools.cache
def lite0() -> Model:
    return core.model("lite0")


def on_network(spec: str) -> Iterator[Entry]:
    """Fitted, where it is to be, on five images; then each image is judged by what was seen of
    the one before it.
    """
    model, scorer = lite0(), core.scorer(spec)
    images = [scene(seed, 200 + 10 * seed, 230) for seed in range(5)]
    seen = scorer.look(model, images)
    yield f"scorers/{spec}/look", of_array(seen)
    yield f"scorers/{spec}/look framed", of_array(scorer.look(model, images[:2], True))
    logits = model(images).logits
    if "training" in scorer.needs:
        scorer.fit(
            [(Outputs(logits, inside={scorer.name: seen}, ids=[f"p{i}" for i in range(5)]), None)], model.head
        )
        yield f"scorers/{spec}/fitted", of_plain(getattr(scorer, "fitted", None))
    yield (
        f"scorers/{spec}/scores",
        of_array(scorer(Outputs(logits, inside={scorer.name: np.roll(seen, 1, axis=0)}))),
    )


def of_many() -> Iterator[Entry]:
    """More activations than a percentile is exact for, and more training images than a bank remembers."""
    rng = np.random.default_rng(3)
    rows = np.maximum(rng.normal(0, 1, (1200, 4000)), 0).astype(np.float32)
    head = (rng.normal(0, 0.05, (CLASSES, 4000)).astype(np.float32), np.zeros(CLASSES, np.float32))

    def given(some: Array, ids: list[str]) -> Outputs:
        return Outputs((some @ head[0].T).astype(np.float32), some, ids=ids)

    training = [
        (given(rows[i : i + 300], [f"p{i + k}" for k in range(300)]), np.arange(300) % CLASSES)
        for i in range(0, 1200, 300)
    ]
    for spec in ("react", "knn(k=3, bank=200)"):
        scorer = core.scorer(spec)
        scorer.fit(training, head)
        yield f"scorers/of many/{spec}", of_array(scorer(given(rows[:9] * np.float32(1.5), [])))
