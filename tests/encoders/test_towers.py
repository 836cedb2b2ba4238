"""The towers learn their captions, match torch at inference, and survive serialization."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sorites.core.errors import SoritesError
from sorites.encoders.towers import Lesson, Towers, teach
from sorites.measures.decomposition import zero_shot

OBJECTS, SHADES = ("cat", "dog", "ship", "frog"), ("photo", "sketch", "night")
PAIRS = [(i, j) for i in range(4) for j in range(3) if (i, j) not in ((0, 2), (3, 1))]


def lesson(n: int = 600, epochs: int = 15) -> tuple[Lesson, np.ndarray, np.ndarray]:
    """Features that are the sum of a class, a style and noise; two pairs are left out."""
    rng = np.random.default_rng(0)
    of_class, of_look = rng.standard_normal((4, 40)), rng.standard_normal((3, 40))
    caption = rng.integers(len(PAIRS), size=n)
    label, look = np.array(PAIRS)[caption].T
    features = (of_class[label] + of_look[look] + 0.5 * rng.standard_normal((n, 40))).astype(np.float32)
    said = [[f"a {SHADES[j]} of a {OBJECTS[i]}", f"{OBJECTS[i]} {SHADES[j]}"] for i, j in PAIRS]
    held = [(0, 2)] * 50 + [(3, 1)] * 50
    unseen = np.array([of_class[i] + of_look[j] for i, j in held]) + 0.5 * rng.standard_normal((100, 40))
    kinds = np.array(PAIRS, np.int64).T.copy()
    return (
        Lesson(features, caption, said, (kinds[0], kinds[1]), epochs),
        unseen.astype(np.float32),
        np.array(held),
    )


@pytest.fixture(scope="module")
def taught() -> Towers:
    return teach(lesson()[0])


def test_generalises_to_held_out_pairs(taught: Towers) -> None:
    _, unseen, held = lesson()
    seen = taught.images(unseen)
    assert (
        zero_shot(seen, taught.texts([f"a photo of a {obj}" for obj in OBJECTS])) == held[:, 0]
    ).mean() > 0.85
    assert (
        zero_shot(seen, taught.texts([f"a {shade} of a ship" for shade in SHADES])) == held[:, 1]
    ).mean() > 0.85


def test_inference_matches_torch(taught: Towers) -> None:
    rows = lesson()[0].features[:20]
    expected = torch.nn.functional.normalize(
        (torch.from_numpy((rows - taught.mean) / taught.scale)) @ torch.from_numpy(taught.projection)
    )
    np.testing.assert_allclose(taught.images(rows), expected.numpy(), atol=1e-6)
    bag = torch.from_numpy(taught.embedding[[taught.vocabulary.index(w) for w in ("cat", "night")]].mean(0))
    inner = torch.relu(bag @ torch.from_numpy(taught.inner) + torch.from_numpy(taught.bias))
    expected = torch.nn.functional.normalize(inner @ torch.from_numpy(taught.outer), dim=0)
    np.testing.assert_allclose(taught.texts(["Cat, night!"])[0], expected.numpy(), atol=1e-6)


def test_the_same_lesson_gives_the_same_towers(two_torch_threads: None) -> None:
    torch.manual_seed(5)
    first = teach(lesson(100, 2)[0])
    torch.manual_seed(6)
    again = teach(lesson(100, 2)[0])
    for name, tensor in first.tensors().items():
        np.testing.assert_array_equal(tensor, again.tensors()[name])
    assert torch.get_num_threads() == 2


def test_a_sentence_of_unknown_words_is_an_error(taught: Towers) -> None:
    np.testing.assert_array_equal(taught.texts(["the purple cat"]), taught.texts(["cat"]))
    with pytest.raises(SoritesError, match="'purple'"):
        taught.texts(["purple"])
    assert taught.texts([]).shape == (0, 64)
