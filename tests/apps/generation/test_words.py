"""Words learnt from images: on the way to them, resumed, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sorites.apps.generation import words as word_training
from sorites.apps.generation.recipes import TOY_WORDS, WordRecipe, word_recipe
from sorites.apps.generation.words import UNFINISHED, first_vectors, learn_word, learn_words
from sorites.core import Sample
from sorites.core.errors import SoritesError
from sorites.core.samples import to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.shelves import Concept
from sorites.diffusion.toy.world import draw
from sorites.diffusion.words import RECORD, words

from .conftest import stopped

QUICK = replace(TOY_WORDS, name="quick", steps=6, batch=2)
RNG = np.random.default_rng(0)
IMAGES = [to_uint8(draw("square", "plain", RNG)) for _ in range(4)]
NAMES = ["disc", "cross"]


@pytest.mark.slow
def test_learning_moves_only_the_word_and_lowers_the_loss(tiny: Pipe, tmp_path: Path) -> None:
    table = tiny.parts.text_encoder.get_input_embeddings().weight
    before = table.detach().clone()
    many = replace(QUICK, steps=25, batch=4, rate=0.2)
    word = learn_word(tiny, "cross", IMAGES, many, tmp_path / "state")
    torch.testing.assert_close(table, before)
    start = first_vectors(tiny, "cross", 1)[0]
    assert not torch.allclose(word.vectors[0], start)
    losses = [_loss(tiny, vectors) for vectors in (start, word.vectors[0])]
    assert losses[1] < losses[0]


def _loss(pipe: Pipe, vectors: torch.Tensor) -> float:
    from sorites.diffusion.latents import latents_of
    from sorites.diffusion.words import Word
    from sorites.diffusion.words import with_learnt_words as taught

    word = Word("cross", (vectors,))
    made = taught(pipe, [word])
    how = replace(QUICK, batch=64, templates=("a picture of a {class}",))
    with torch.no_grad():
        return float(
            word_training._loss(made, word, latents_of(made, IMAGES), how, torch.Generator().manual_seed(3))
        )


@pytest.mark.slow
def test_stopped_and_typed_again_the_word_is_the_same(
    tiny: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_training, "STEPS_PER_CHECKPOINT", 2)
    whole, again = stopped(
        lambda state, tick: learn_word(tiny, "cross", IMAGES, QUICK, state, tick), tmp_path
    )
    torch.testing.assert_close(again.vectors[0], whole.vectors[0], rtol=0, atol=0)


@pytest.mark.slow
def test_both_encoders_of_stable_diffusion_xl_learn(large: Pipe, tmp_path: Path) -> None:
    word = learn_word(large, "cross", IMAGES, replace(QUICK, steps=2), tmp_path / "state")
    for found, start in zip(word.vectors, first_vectors(large, "cross", 1), strict=True):
        assert found.shape == start.shape
        assert not torch.allclose(found, start)


def test_a_damaged_state_is_named(tiny: Pipe, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"nothing")
    with pytest.raises(SoritesError, match="Delete it"):
        learn_word(tiny, "cross", IMAGES, QUICK, tmp_path / "state")


@pytest.fixture
def source(tmp_path: Path) -> list[Sample]:
    from sorites import core
    from sorites.core.labels import labels

    for name in NAMES:
        (tmp_path / "real" / name).mkdir(parents=True)
        for place, image in enumerate(IMAGES[:2]):
            Image.fromarray(image).resize((20, 24)).save(tmp_path / "real" / name / f"{place}.png")
    return list(core.source(f"folder:{tmp_path / 'real'}", labels(NAMES)))


def test_words_of_a_source_are_written_left_and_refused(
    tiny: Pipe, tmp_path: Path, source: list[Sample]
) -> None:
    out, concepts = tmp_path / "out", [Concept(3, "cross")]
    labels = {concepts[0]: NAMES.index("cross")}
    [folder] = learn_words(tiny, concepts, source, labels, QUICK, out)
    facts = json.loads((folder / RECORD).read_text())
    assert (facts["class"], facts["number"], facts["images"], facts["token"]) == ("cross", 3, 2, "<cross>")
    assert facts["recipe"] == json.loads(json.dumps(QUICK.facts()))
    assert not (folder / UNFINISHED).exists()
    assert [word.name for word in words(out)] == ["cross"]
    opened: list[str] = []
    learn_words(
        tiny,
        concepts,
        source,
        labels,
        QUICK,
        out,
        bar=lambda what, n: opened.append(what) or (lambda _: None),
    )  # type: ignore[func-returns-value]
    assert not opened
    with pytest.raises(SoritesError, match="learnt with rate 0.2, not 0.3"):
        learn_words(tiny, concepts, source, labels, replace(QUICK, rate=0.3), out)


def test_a_class_without_images_is_named(tiny: Pipe, tmp_path: Path, source: list[Sample]) -> None:
    with pytest.raises(SoritesError, match="no image of the class cross"):
        learn_words(
            tiny,
            [Concept(1, "cross")],
            [one for one in source if one.label == 0],
            {Concept(1, "cross"): NAMES.index("cross")},
            QUICK,
            tmp_path / "out",
        )


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 0), ("rate", 0.0), ("vectors", 0), ("templates", ("a photo",))]
)
def test_what_cannot_be_learnt_is_refused(name: str, value: object) -> None:
    with pytest.raises(SoritesError, match=f"^{name} must be"):
        WordRecipe(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(SoritesError, match="no word recipe named"):
        word_recipe("nothing")


def test_classes_of_imagenet_are_found_by_id_name_and_number(tmp_path: Path) -> None:
    """Folders as ImageNet has them, and others; classes that were not asked for are skipped."""
    from sorites import core
    from sorites.apps.generation.concepts import concepts, label_space, labels_of

    asked = concepts("cns", ["n01614925", "4"])
    assert [concept.number for concept in asked] == [4, 22]
    for spelled in ("n01614925", "bald eagle", "22"):
        root = tmp_path / spelled
        for name in (spelled, "n02123045", "something else"):
            (root / name).mkdir(parents=True)
            Image.fromarray(IMAGES[0]).save(root / name / "0.png")
        space = label_space(asked)
        samples = core.source(f"folder:{root}", space).samples
        label = labels_of(asked, space)[asked[1]]
        assert [Path(sample.id).parent.name for sample in samples if sample.label == label] == [spelled]


def test_labels_can_be_given_and_must_have_the_class(tmp_path: Path) -> None:
    from sorites.apps.generation.concepts import concepts, label_space, labels_of
    from sorites.core.errors import UnknownName

    (tmp_path / "labels.txt").write_text("cup\nbald eagle\n")
    space = label_space(concepts("cns"), str(tmp_path / "labels.txt"))
    [eagle] = concepts("imagenet", ["bald eagle"])
    assert labels_of([eagle], space) == {eagle: 1}
    with pytest.raises(UnknownName):
        labels_of(concepts("cns", ["4"]), space)
