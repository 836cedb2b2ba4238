"""The decomposition recovers known directions, stays orthogonal, and uses the loss of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from sorites.core.errors import SoritesError
from sorites.measures import decomposition
from sorites.measures.decomposition import (
    Decomposition,
    Training,
    _orthogonality_error,
    accuracies,
    decompose,
    nearest,
    triplet_loss,
    triplets,
)

WIDE = 16
LABELS, STYLES = [f"object{i}" for i in range(24)], [[f"style{i} {{}}"] for i in range(24)]


def world(seed: int = 0, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Text features with a known decomposition: meanings in one half of a random frame, styles in
    the other. Returns the features of labels x styles, and the frame's two halves.
    """
    rng = np.random.default_rng(seed)
    frame = ortho_group.rvs(WIDE, random_state=rng)
    meaning, style = frame[:, : WIDE // 2], frame[:, WIDE // 2 :]
    grid = (rng.standard_normal((24, WIDE // 2)) @ meaning.T)[:, None] + (
        rng.standard_normal((24, WIDE // 2)) @ style.T
    )[None]
    return grid + noise * rng.standard_normal(grid.shape), meaning, style


def learnt(grid: np.ndarray, **how: object) -> Decomposition:
    made = triplets(LABELS, STYLES, 3000)
    place = {f"style{j} object{i}": grid[i, j] for i in range(24) for j in range(24)}
    return decompose(np.stack([place[text] for text in made.texts]), made.places, Training(**how))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_known_decomposition_is_recovered(seed: int) -> None:
    grid, meaning, style = world(seed)
    halves = learnt(grid, epochs=30)
    for found, known in (
        (halves.matrix[:, : halves.half], meaning),
        (halves.matrix[:, halves.half :], style),
    ):
        assert np.degrees(subspace_angles(found, known)).max() < 3
    assert halves.error < 1e-10


def test_recovery_tolerates_noise() -> None:
    grid, meaning, _ = world(noise=0.2)
    halves = learnt(grid, epochs=25)
    assert np.degrees(subspace_angles(halves.matrix[:, : halves.half], meaning)).max() < 12


@pytest.mark.slow
def test_the_published_penalty_finds_the_same_halves_less_orthogonal() -> None:
    grid, meaning, _ = world()
    exact, free = learnt(grid, epochs=40), learnt(grid, epochs=40, penalty=1.0)
    assert np.degrees(subspace_angles(free.matrix[:, : free.half], meaning)).max() < 10
    assert exact.error < 1e-10 < 1e-5 < free.error < 0.1


def test_the_same_texts_give_the_same_matrix_whatever_torch_was_doing(two_torch_threads: None) -> None:
    grid, *_ = world()
    torch.manual_seed(1)
    first = learnt(grid, epochs=2)
    torch.manual_seed(2)
    np.testing.assert_array_equal(learnt(grid, epochs=2).matrix, first.matrix)
    assert torch.get_num_threads() == 2


def test_the_loss_is_equation_2() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 3, WIDE))

    def far(a: np.ndarray, b: np.ndarray) -> float:
        return float(1 - a @ b / np.sqrt((a @ a) * (b @ b)))

    total = 0.0
    for standard, semantic, covariate in rows:
        (s, c), (ss, sc), (cs, cc) = (
            (x[: WIDE // 2], x[WIDE // 2 :]) for x in (standard, semantic, covariate)
        )
        total += max(far(s, cs) - far(s, ss) + 0.3, 0) + max(far(c, sc) - far(c, cc) + 0.3, 0)
    assert float(triplet_loss(torch.from_numpy(rows), 0.3)) == pytest.approx(total / 50)


def test_halves_keep_the_length_of_a_feature() -> None:
    halves = Decomposition(ortho_group.rvs(10, random_state=0))
    rows = np.random.default_rng(0).standard_normal((7, 10))
    together = np.square(halves.semantic(rows)).sum(1) + np.square(halves.covariate(rows)).sum(1)
    np.testing.assert_allclose(together, np.square(rows).sum(1), rtol=1e-5)


@pytest.mark.slow
def test_the_semantic_half_keeps_the_class_and_the_covariate_half_forgets_it() -> None:
    grid, *_ = world(noise=0.3)
    halves = learnt(world()[0], epochs=25)
    images, ground_truth = grid.reshape(-1, WIDE), np.repeat(np.arange(24), 24)
    means = world()[0].mean(1), world()[0].mean(0)
    found = dict(
        accuracies(halves, images, ground_truth, means[0], means).select("part", "value").iter_rows()
    )
    assert found["semantic"] >= found["whole"] - 0.03
    assert found["semantic"] > 0.9
    assert found["covariate"] < 3 / 24
    assert found["pca_covariate"] < 3 / 24


def test_table_3_counts_the_right_class_first_and_among_five() -> None:
    """Acc@1 and Acc@5 by a full sort of cosines, for the whole embedding, both halves and PCA's
    directions.
    """
    grid, *_ = world(noise=0.8)
    images, ground_truth = (grid + 0.5)[:, :7].reshape(-1, WIDE), np.repeat(np.arange(24), 7)
    halves = Decomposition(ortho_group.rvs(WIDE, random_state=1))
    means = world(noise=2.0)[0].mean(1), world(noise=2.0)[0].mean(0)
    found = {row["part"]: row for row in accuracies(halves, images, ground_truth, means[0], means).to_dicts()}

    def by_sorting(seen: np.ndarray, named: np.ndarray) -> tuple[float, float]:
        first = five = 0
        for row, right in zip(seen, ground_truth, strict=True):
            cosines = [row @ text / np.linalg.norm(row) / np.linalg.norm(text) for text in named]
            order = sorted(range(24), key=lambda i: -cosines[i])
            first += order[0] == right
            five += right in order[:5]
        return first / len(seen), five / len(seen)

    def kept(rows: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(np.cov(rows.T))
        values, vectors = values[::-1], vectors[:, ::-1]
        return vectors[:, : 1 + int(np.sum(np.cumsum(values) / values.sum() < 0.9))]

    cut = halves.half
    turns = {"whole": np.eye(WIDE), "semantic": halves.matrix[:, :cut], "covariate": halves.matrix[:, cut:]}
    turns |= {"pca_semantic": kept(means[0]), "pca_covariate": kept(means[1])}
    for part, turn in turns.items():
        expected = by_sorting(images @ turn, means[0] @ turn)
        assert (found[part]["value"], found[part]["top5"]) == pytest.approx(expected)
        assert found[part]["n"] == 24 * 7
    assert 0 < found["whole"]["value"] < found["whole"]["top5"] < 1


def test_many_classes_and_images_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images, classes = rng.standard_normal((50, 8)), rng.standard_normal((2000, 8))
    whole = nearest(images, classes)
    monkeypatch.setattr(decomposition, "IMAGES_PER_BLOCK", 7)
    np.testing.assert_array_equal(nearest(images, classes), whole)
    np.testing.assert_array_equal(whole[:, 0], decomposition.zero_shot(images, classes))
    assert nearest(images, classes[:3]).shape == (50, 3)


@pytest.mark.parametrize(
    ("texts", "places", "says"),
    [
        (np.ones((5, 3)), np.zeros((1, 3), int), "l >= 4"),
        (np.full((5, 8), np.nan), np.zeros((1, 3), int), "finite text features"),
        (np.ones((5, 8)), np.zeros((0, 3), int), "N x 3 triplets"),
        (np.ones((5, 8)), np.full((2, 3), 5), "text 5, but there are 5"),
    ],
)
def test_invalid_training_texts_raise(texts: np.ndarray, places: np.ndarray, says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        decompose(texts, places)


def test_refuses_features_of_another_space() -> None:
    with pytest.raises(SoritesError, match=r"N x 8, .* got \(3, 9\)"):
        Decomposition(np.eye(8)).semantic(np.ones((3, 9)))


def test_equation_1_the_halves_of_a_rotated_feature() -> None:
    rng = np.random.default_rng(3)
    matrix, feature = rng.standard_normal((6, 6)), rng.standard_normal((1, 6))
    rotated = [sum(feature[0, i] * matrix[i, j] for i in range(6)) for j in range(6)]
    halves = Decomposition(matrix)
    np.testing.assert_allclose(halves.semantic(feature)[0], rotated[:3], rtol=1e-6)
    np.testing.assert_allclose(halves.covariate(feature)[0], rotated[3:], rtol=1e-6)


def test_equation_3_is_the_squared_distance_from_orthogonal() -> None:
    matrix = np.random.default_rng(4).standard_normal((5, 5))
    total = sum((matrix[:, i] @ matrix[:, j] - (i == j)) ** 2 for i in range(5) for j in range(5))
    assert float(_orthogonality_error(torch.from_numpy(matrix))) == pytest.approx(total)
