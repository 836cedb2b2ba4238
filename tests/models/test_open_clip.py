"""The zero-shot model: a tiny pair of encoders taught here, real loading, and the published ways of
asking.
"""

from __future__ import annotations

import importlib
import socket
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.models.shapes import CLASSES, drawn, taught

import sorites
from sorites import core
from sorites.core import Generated, Model, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.evaluation import plan
from sorites.models import open_clip as room
from sorites.suites.suite import parse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> str:
    return taught(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def held_out() -> Source:
    """Images that the pair was not taught on: it saw those with numbers below 120."""
    samples = [
        Sample(f"{name} {i}", Generated(lambda name=name, i=i: drawn(name, i)), k)  # type: ignore[misc]
        for k, name in enumerate(CLASSES)
        for i in range(500, 508)
    ]
    return Source("held out", samples)


def classed(spec: str, names: tuple[str, ...] = CLASSES) -> Model:
    make = core.model(spec).for_classes
    assert make is not None
    return make(names)


def loaded(pair: str) -> tuple[Any, Any, Any]:
    """The pair by the library itself: model, transform, tokenizer."""
    library = importlib.import_module("open_clip")
    model, _, prepare = library.create_model_and_transforms("tiny-shapes", pretrained=pair.partition("@")[2])
    return model.eval(), prepare, library.get_tokenizer("tiny-shapes")


@pytest.mark.slow
def test_it_knows_held_out_images_far_above_chance_in_a_run(
    pair: str, held_out: Source, tmp_path: Path
) -> None:
    suite = parse(
        {"name": "shapes", "labels": list(CLASSES), "scorers": ["msp", "ash_b", "odin", "mds"]}, "test"
    )
    lesson = [
        Sample(f"{name} {i}", Generated(lambda name=name, i=i: drawn(name, i)), k)  # type: ignore[misc]
        for k, name in enumerate(CLASSES)
        for i in range(9)
    ]
    training = Source("taught", lesson)
    spec = f"open_clip:{pair}"
    rows = sorites.run(suite, source=held_out, models=[spec], fit=training, out=tmp_path / "run").collect()
    assert rows.filter(pl.col("output") == "label")["correct"].mean() > 0.85  # type: ignore[operator]
    assert rows["model"].unique().to_list() == [spec]
    assert rows["error"].null_count() == rows.height
    assert rows.filter(pl.col("output") == "ood")["scorer"].n_unique() == 4
    plain = sorites.run(
        suite, source=held_out, models=[core.model(spec)], fit=training, out=tmp_path / "run"
    ).collect()
    assert plain.equals(rows)


def test_logits_are_clip_s_own_for_the_prompt_of_focus(pair: str, held_out: Source) -> None:
    """FOCUS: "a photo of a {first synonym}"; logits are those of the library for the same images
    and texts.
    """
    import torch

    images = [sample.load() for sample in held_out][::7]
    odd = np.asarray(Image.fromarray(images[0]).resize((50, 41)))
    model, prepare, tokens = loaded(pair)
    with torch.inference_mode():
        batch = torch.stack([prepare(Image.fromarray(p)) for p in (*images, odd)])
        expected, _ = model.get_logits(batch, tokens([f"a photo of a {name}" for name in CLASSES]))
    mine = classed(f"open_clip:{pair}")
    given = mine([*images, odd])
    assert given.logits is not None
    assert given.features is not None
    np.testing.assert_allclose(given.logits, expected.numpy(), atol=2e-3)
    assert mine.head is not None
    np.testing.assert_allclose(given.features @ mine.head[0].T + mine.head[1], given.logits, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(given.features, axis=1), 1, atol=1e-5)


def test_templates_of_a_file_are_averaged_as_clip_s_notebook_does(
    pair: str, held_out: Source, tmp_path: Path
) -> None:
    import torch

    templates = ["a bad photo of a {}.", "a sculpture of a {}.", "the {}"]
    (tmp_path / "templates.txt").write_text("\n".join(templates) + "\n\n", encoding="utf-8")
    images_u8 = [sample.load() for sample in held_out][::11]
    model, prepare, tokens = loaded(pair)
    with torch.inference_mode():
        weights = []
        for name in CLASSES:
            texts = model.encode_text(tokens([t.format(name) for t in templates]))
            texts = texts / texts.norm(dim=-1, keepdim=True)
            mean = texts.mean(dim=0)
            weights.append(mean / mean.norm())
        images = model.encode_image(torch.stack([prepare(Image.fromarray(p)) for p in images_u8]))
        images = images / images.norm(dim=-1, keepdim=True)
        expected = model.logit_scale.exp() * images @ torch.stack(weights, dim=1)
    given = classed(f"open_clip:{pair}?templates={tmp_path / 'templates.txt'}")(images_u8)
    np.testing.assert_allclose(given.logits, expected.numpy(), atol=2e-3)


def test_a_class_is_said_by_its_first_synonym() -> None:
    said = dict(zip(imagenet().ids, map(room._plain_name, imagenet().names), strict=True))
    assert said["n02012849"] == said["n03126707"] == "crane"
    assert said["n02113186"] == "Cardigan"
    assert said["n01440764"] == "tench"
    assert room._plain_name("fire_truck") == "fire truck"
    assert room._plain_name("bank (river)") == "bank (river)"


def test_a_torch_file_gives_the_same_and_one_with_more_than_tensors_is_refused(
    pair: str, tmp_path: Path
) -> None:
    import torch

    config, _, weights = pair.partition("@")
    by_zip = classed(f"open_clip:{config}@{Path(weights).with_suffix('.pt')}")
    assert by_zip.version == classed(f"open_clip:{pair}").version
    torch.save({"state_dict": {"x": Path("a")}}, tmp_path / "more.pt")
    with pytest.raises(SoritesError, match="did not load"):
        core.model(f"open_clip:{config}@{tmp_path / 'more.pt'}")


def test_local_weights_need_no_network(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refused)
    assert classed(f"open_clip:{pair}").labels is None
    with pytest.raises(SoritesError, match="did not load"):
        core.model("open_clip:ViT-B-32@no_such_tag")


def test_the_version_holds_weights_templates_and_classes(pair: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "t.txt").write_text("the {}", encoding="utf-8")
    config, _, weights = pair.partition("@")
    other = load_file(weights)
    other["visual.conv1.weight"] *= 1.5
    save_file(other, tmp_path / "other.safetensors")
    versions = [
        classed(f"open_clip:{pair}").version,
        classed(f"open_clip:{pair}?templates={tmp_path / 't.txt'}").version,
        classed(f"open_clip:{pair}", CLASSES[:-1]).version,
        classed(f"open_clip:{config}@{tmp_path / 'other.safetensors'}").version,
    ]
    assert len(set(versions)) == 4
    assert classed(f"open_clip:{pair}").version == versions[0]


def test_a_plan_gives_it_the_suite_s_classes(pair: str, held_out: Source) -> None:
    suite = parse({"name": "s", "labels": list(CLASSES[:4]), "models": [f"open_clip:{pair}"]}, "test")
    some = Source("some", [sample for sample in held_out if sample.label is not None and sample.label < 4])
    model = plan.make(suite, some).models[f"open_clip:{pair}"]
    assert model.name == f"open_clip:{pair}"
    logits = model([next(iter(some)).load()]).logits
    assert logits is not None
    assert logits.shape == (1, 4)


def test_its_text_encoder_embeds_words_like_classes(pair: str, held_out: Source) -> None:
    model = classed(f"open_clip:{pair}")
    assert model.head is not None
    assert model.texts is not None
    weight = model.head[0] / np.linalg.norm(model.head[0], axis=1, keepdims=True)
    np.testing.assert_allclose(model.texts(list(CLASSES)), weight, atol=1e-6)


def test_word_lists_are_scored_in_a_run(pair: str, held_out: Source, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("house\nriver\nengine\nbottle\n", encoding="utf-8")
    neglabel = f"neglabel(words='{tmp_path / 'words.txt'}', keep=1, groups=2)"
    content = {"name": "s", "labels": list(CLASSES[:4]), "models": [f"open_clip:{pair}"]}
    suite = parse({**content, "scorers": ["mcm", neglabel]}, "test")
    some = Source(
        "some", [sample for sample in held_out if sample.label is not None and sample.label < 4][:6]
    )
    table = sorites.run(
        suite, source=some, out=tmp_path / "run", shifts=["contrast"], keep_features=True
    ).collect()
    scores = table.filter(pl.col("output") == "ood")
    assert scores["error"].null_count() == scores.height == 2 * scores["image_id"].n_unique()
    known = plan.make(suite, some).models[f"open_clip:{pair}"]
    sample = next(iter(some))
    outputs = known([sample.load()])
    scorer = core.scorer(neglabel)
    scorer.embed = known.texts
    clean = scores.filter(
        pl.col("sample_id") == sample.id, pl.col("severity") == 0, pl.col("scorer") == scorer.name
    )
    assert clean["score"].item() == pytest.approx(float(scorer.fit((), known.head)(outputs)[0]), abs=1e-4)
    with pytest.raises(SoritesError, match="text encoder"):
        sorites.score(tmp_path / "run", ["neglabel"])


def test_mistakes_are_reported(pair: str, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("a photo\n", encoding="utf-8")
    wrong = {
        "open_clip": "Type: open_clip:ViT-B-32@weights.safetensors",
        "open_clip:ViT-B-32": "expected NAME@WEIGHTS",
        f"open_clip:{pair}?template=x": "Did you mean templates",
        f"open_clip:{pair}?templates": "expected .templates=VALUE",
        f"open_clip:{pair}?templates={tmp_path / 'none.txt'}": "cannot read .*none.txt: .*Expected templates",
        f"open_clip:{pair}?templates={tmp_path / 'bad.txt'}": (
            "for the class, such as 'a photo of a {}', got 'a photo'"
        ),
    }
    for spec, says in wrong.items():
        with pytest.raises(SoritesError, match=says.replace("{}", r"\{\}")):
            core.model(spec)
    with pytest.raises(SoritesError, match="has no classes"):
        core.model(f"open_clip:{pair}")([drawn(CLASSES[0], 0)])
