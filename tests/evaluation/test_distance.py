"""Distances and levels of sources and runs, against a loop; a small encoder of our own stands for
the large ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.evaluation.conftest import how, suite
from typer.testing import CliRunner

import sorites
from sorites import core
from sorites.cli import app
from sorites.core import Attr, Encoder, Examples, Model, Sample, Setting, Source, encoder, table
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, labels
from sorites.core.rng import digest
from sorites.evaluation.facts import decomposition, distance, rulers
from sorites.evaluation.facts.distance import distance_of_texts
from sorites.evaluation.options import _edges
from sorites.suites.suite import parse

pytestmark = pytest.mark.slow


def by_loop(
    judge: Encoder, images: list[np.ndarray], bank: list[np.ndarray], k: int
) -> dict[str, list[float]]:
    halves = decomposition.cached(judge, decomposition.recipe(judge))
    found: dict[str, list[float]] = {"semantic": [], "covariate": []}
    for half, degrees in found.items():
        known = getattr(halves, half)(judge.images(bank, False)).astype(np.float64)
        for row in getattr(halves, half)(judge.images(images, False)).astype(np.float64):
            cosine = known @ row / np.linalg.norm(known, axis=1) / np.linalg.norm(row)
            degrees.append(sorted(1 - cosine)[k - 1])
    return found


def test_a_source_is_measured_as_by_a_loop(judge: str, photos: Path) -> None:
    source = core.source(f"folder:{photos}")
    found = distance.distance_of_source(source, how(judge, photos))
    images = [sample.load() for sample in source]
    expected = by_loop(encoder(judge), images, images, 3)
    for half, degrees in expected.items():
        np.testing.assert_allclose(found.rows[half], degrees, atol=1e-6)
        edges = found.record.edges[half]
        assert len(edges) == 3
        low, high = np.percentile(degrees, [1, 99])
        np.testing.assert_allclose(edges, np.linspace(low, high, 5)[1:-1], atol=1e-6)
        assert (
            found.rows[distance.LEVEL_COLUMNS[half]].to_list()
            == (1 + np.digitize(found.rows[half], edges)).tolist()
        )
    assert found.rows["sample_id"].to_list() == [sample.id for sample in source]
    assert found.cells()["n"].sum() == 20


def test_texts_are_measured_against_in_distribution_images_as_by_a_loop(
    judge: str, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 2.3 of IS-OOD: the distance of a prompt's text features to the image features of the
    in-distribution images.
    """
    own, texts = (
        encoder(judge),
        ["a photo of a cat", "a toy dog", "a sketch of a ship", "a toy frog", "a photo of a frog"],
    )
    halves = decomposition.cached(own, decomposition.recipe(own))
    bank = own.images([sample.load() for sample in core.source(f"folder:{photos}")], False)
    monkeypatch.setattr(decomposition, "TEXTS_PER_BATCH", 2)
    found = distance_of_texts(iter(texts), how(judge, photos, cov_edges=[0.5, 1.0]))
    assert found.rows["text"].to_list() == texts
    matrix = halves.matrix
    for half, part in (("semantic", matrix[:, :6]), ("covariate", matrix[:, 6:])):
        for text, value in found.rows.select("text", half).iter_rows():
            row, known = own.texts([text])[0] @ part, bank @ part
            cosines = [row @ other / np.linalg.norm(row) / np.linalg.norm(other) for other in known]
            assert value == pytest.approx(sorted(1 - np.array(cosines))[2], abs=1e-5)
    assert (
        found.rows["cov_level"].to_list() == (1 + np.digitize(found.rows["covariate"], [0.5, 1.0])).tolist()
    )
    low, high = np.percentile(found.rows["semantic"], [1, 99])
    np.testing.assert_allclose(found.record.edges["semantic"], np.linspace(low, high, 5)[1:-1], atol=1e-6)
    with pytest.raises(SoritesError, match="no texts to measure"):
        distance_of_texts([], how(judge, photos))


def test_means_of_texts_are_those_of_the_whole_grid_however_many_are_encoded_at_a_time(
    judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = encoder(judge)
    made = decomposition.recipe(
        own, styles=(("a photo of a {}", "the photo of one {} toy"), ("a sketch of a {}",))
    )
    grid = np.array(
        [
            [
                np.mean([own.texts([t.replace("{}", label)])[0] for t in style], axis=0)
                for style in made.styles
            ]
            for label in made.labels
        ]
    )
    for count in (1, 7, 16384):
        monkeypatch.setattr(decomposition, "TEXTS_PER_BATCH", count)
        labels_, styles = decomposition.text_means(own, made)
        np.testing.assert_allclose(labels_, grid.mean(axis=1), atol=1e-6)
        np.testing.assert_allclose(styles, grid.mean(axis=0), atol=1e-6)


def test_images_are_told_apart_among_other_classes_than_those_of_the_texts(judge: str, photos: Path) -> None:
    """Table 3 learns from ImageNet-21K's labels and tells ImageNet's thousand classes apart."""
    own = encoder(judge)
    made = decomposition.recipe(own)
    halves = decomposition.learn(own, made)
    known = imagenet_like(photos)
    own.texts = lambda sentences: np.array(
        [np.sin(np.arange(1, 13) * sum(map(ord, s))) for s in sentences], np.float32
    )
    found = decomposition.report(own, halves, made, f"folder:{photos}", None, known)
    assert found is not None
    row = found.filter(part="whole").row(0, named=True)
    source = core.source(f"folder:{photos}", known)
    texts = np.array(
        [np.mean([own.texts([s[0].replace("{}", n)])[0] for s in made.styles], axis=0) for n in known.names]
    )
    seen = own.images([s.load() for s in source], False)
    cosines = (seen / np.linalg.norm(seen, axis=1)[:, None]) @ (
        texts / np.linalg.norm(texts, axis=1)[:, None]
    ).T
    assert row["value"] == pytest.approx(
        np.mean([c.argmax() == s.label for c, s in zip(cosines, source, strict=True)])
    )
    assert (row["top5"], row["n"], row["chance"]) == (1.0, 20, 0.25)


def imagenet_like(photos: Path) -> Labels:
    return labels(sorted(entry.name for entry in photos.iterdir()))


def test_the_grid_is_in_order_and_says_which_axis_is_which() -> None:
    levels = [(2, 3), (10, 1), (1, 2), (1, 2)]
    rows = pl.DataFrame(levels, {"sem_level": pl.Int32, "cov_level": pl.Int32}, orient="row")
    grid = distance.Distances(rows, {}).grid()
    assert grid.columns == ["images", "sem 1", "sem 2", "sem 10"]
    assert grid.rows() == [
        ("cov 1", None, None, 1),
        ("cov 2", 2, None, None),
        ("cov 3", None, 1, None),
    ]


def test_a_run_gets_its_distances_as_facts(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    asked = how(judge, photos, sem_edges=[0.01, 0.02], cov_edges=[0.05])
    sorites.run(
        suite(asked), source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=6
    ).collect()
    rows = table.read(tmp_path / "run").filter(pl.col("output") == "ood").collect()
    assert rows.height == 6 * 13
    assert rows["sem_level"].null_count() == rows["cov_level"].null_count() == 0
    assert set(rows["sem_level"]) <= {1, 2, 3}
    assert set(rows["cov_level"]) <= {1, 2}
    record = json.loads((tmp_path / "run" / "facts" / "distance.json").read_text())
    assert record["edges"] == {"semantic": [0.01, 0.02], "covariate": [0.05]}
    degrees = (
        rows.select("sem_level", "degrees")
        .explode("degrees")
        .unnest("degrees")
        .filter(pl.col("measure") == "semantic")
    )
    assert degrees["sem_level"].to_list() == (1 + np.digitize(degrees["value"], [0.01, 0.02])).tolist()


def test_what_was_measured_is_not_measured_again(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = suite(how(judge, photos))
    sorites.run(asked, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=5)
    first = (tmp_path / "run" / "facts" / "distance.parquet").read_bytes()
    monkeypatch.setattr(distance, "ruler", lambda *args: pytest.fail("measured again"))
    sorites.run(asked, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=5)
    assert (tmp_path / "run" / "facts" / "distance.parquet").read_bytes() == first


def test_measuring_does_not_make_another_run(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    plain = suite(how(judge, photos)).model_copy(update={"distance": None})
    ids = [
        sorites.run(one, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=5).collect()[
            "run_id"
        ][0]
        for one in (plain, suite(how(judge, photos)))
    ]
    assert ids[0] == ids[1]


def test_levels_that_a_source_brings_become_facts(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    held = list(core.source(f"folder:{photos}"))
    levels = (Attr("sem_level", "8"), Attr("cov_level", "2"))
    graded = [
        Sample(f"far/{s.id}", s.image, attrs=levels, shift="captured", setting=Setting(None, {"a": 1}))
        for s in held[:4]
    ]
    recipe = parse({"name": "graded", "scorers": ["msp"]}, "test")
    rows = sorites.run(
        recipe, source=Source("own", [*held, *graded]), models=[tiny()], out=tmp_path / "run"
    ).collect()
    found = (
        rows.filter(pl.col("output") == "ood")
        .group_by("shift")
        .agg(pl.col("sem_level", "cov_level").unique())
        .sort("shift")
    )
    assert found.rows() == [("captured", [8], [2]), ("clean", [None], [None])]


def test_a_decomposition_is_kept_and_refused_elsewhere(judge: str, tmp_path: Path) -> None:
    own = encoder(judge)
    made = decomposition.recipe(own)
    halves = decomposition.learn(own, made)
    decomposition.save(tmp_path / "split.safetensors", halves, own, made)
    np.testing.assert_array_equal(
        decomposition.load(tmp_path / "split.safetensors", own).matrix, halves.matrix
    )
    own.version = "2"
    with pytest.raises(SoritesError, match="was learnt on python"):
        decomposition.load(tmp_path / "split.safetensors", own)
    with pytest.raises(SoritesError, match="cannot read .*none"):
        decomposition.load(tmp_path / "none", own)
    with pytest.raises(SoritesError, match="has no labels"):
        decomposition.recipe(Encoder("bare", own.images, own.texts))


def test_a_limit_holds_for_the_images_that_a_encoder_brings(judge: str, photos: Path) -> None:
    own = encoder(judge)
    rows = own.images([sample.load() for sample in core.source(f"folder:{photos}")], False)

    def examples(part: str, limit: int | None) -> Examples:
        n = min(limit or 20, 20)
        return Examples(rows[:n], np.arange(n) % 4, np.arange(n) % 3)

    own.examples = examples
    made = decomposition.recipe(own)
    halves = decomposition.learn(own, made)
    for limit, n in ((5, 5), (None, 20)):
        found = decomposition.report(own, halves, made, None, limit)
        assert found is not None
        assert set(found["n"]) == {n}


def test_the_verbs(judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(entry.name for entry in photos.iterdir()), encoding="utf-8")
    learnt = CliRunner().invoke(
        app, ["decompose", "train", "--encoder", judge, "--epochs", "2", "--out", "w.safetensors"]
    )
    assert learnt.exit_code == 0, learnt.output
    assert "W is orthogonal to" in learnt.output
    words = [
        f"folder:{photos}",
        "--against",
        f"folder:{photos}",
        "--encoder",
        judge,
        "--decomposition",
        "w.safetensors",
    ]
    done = CliRunner().invoke(
        app, ["distance", *words, "--labels", str(names), "--k", "2", "--levels", "3", "--out", "d.parquet"]
    )
    assert done.exit_code == 0, done.output
    assert "wrote 20 images to d.parquet" in done.output
    assert pl.read_parquet("d.parquet").columns == [
        "sample_id",
        "semantic",
        "covariate",
        "sem_level",
        "cov_level",
    ]


def test_folders_of_any_classes_are_measured_without_naming_them(
    judge: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    for entry, name in zip(sorted(photos.iterdir()), ("good part", "scratched", "cat", "ship"), strict=True):
        (own / name).mkdir(parents=True)
        for file in entry.iterdir():
            (own / name / file.name).write_bytes(file.read_bytes())
    words = ["distance", f"folder:{own}", "--against", f"folder:{photos}", "--encoder", judge, "--k", "2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "wrote 20 images" in done.output
    assert "note:" not in done.stderr
    names = tmp_path / "names.txt"
    names.write_text(sorted(photos.iterdir())[0].name, encoding="utf-8")
    named = CliRunner().invoke(app, [*words, "--labels", str(names)])
    assert named.exit_code == 0, named.output
    assert "wrote 20 images" in named.output
    names.write_text("scratched", encoding="utf-8")
    refused = CliRunner().invoke(app, [*words, "--labels", str(names)])
    assert refused.exit_code != 0
    assert "has no image of scratched" in str(refused.exception)


def test_only_in_distribution_images_of_the_named_classes_are_used(judge: str, photos: Path) -> None:
    """Other classes in the same folder are left out; for a run with other classes all images are used."""
    classes = sorted(entry.name for entry in photos.iterdir())
    for names, used in (
        (classes[:1], classes[:1]),
        ([*classes[1:3], "scratched"], classes[1:3]),
        (["scratched"], classes),
    ):
        found = list(rulers.in_distribution_images(f"folder:{photos}", labels(names), encoder(judge)))
        assert sorted({sample.id.split("/")[0] for sample in found}) == used
        assert len(found) == 5 * len(used)


def test_a_encoder_without_classes_is_decomposed_by_those_of_the_images(judge: str, photos: Path) -> None:
    bare = encoder(judge)
    monkey = Encoder("bare", bare.images, bare.texts, styles=bare.styles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "encoder", lambda spec: monkey)
        held = rulers.ruler(how(judge, photos), labels(("cat", "dog", "frog", "ship")))
    expected = decomposition.learn(bare, decomposition.recipe(bare))
    np.testing.assert_array_equal(held.decomposition.matrix, expected.matrix)


def test_a_run_is_measured_with_its_own_labels(
    judge: str, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    asked = how(judge, photos)
    settings = asked.model_dump(exclude_unset=True)
    plain = suite(asked).model_copy(update={"distance": None})
    sorites.run(plain, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", limit=2)
    with pytest.raises(SoritesError, match="is a run"):
        distance.distance(str(tmp_path / "run"), **settings, labels="imagenet")
    assert distance.distance(str(tmp_path / "run"), **settings).rows.height == 2 * 13


def test_edges_are_numbers() -> None:
    assert _edges("0.1,0.2") == (0.1, 0.2)
    with pytest.raises(SoritesError, match="numbers separated by commas"):
        _edges("a,b")


def test_fewer_in_distribution_images_than_k(judge: str, photos: Path) -> None:
    with pytest.raises(SoritesError, match="k=30 exceeds the 20 "):
        distance.distance_of_source(core.source(f"folder:{photos}"), how(judge, photos, k=30))


def test_images_that_cannot_be_read_are_counted(judge: str, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "some")
    for i, folder in enumerate(sorted((tmp_path / "some").iterdir())):
        if i < 2:
            (folder / "broken.png").write_bytes(b"")
    some = f"folder:{tmp_path / 'some'}"
    found = distance.distance(
        some, **how(judge, tmp_path / "some").model_dump(exclude_unset=True), out=tmp_path / "d.parquet"
    )
    assert found.rows.height == 20
    in_distribution, images = found.record.left_out
    assert in_distribution.startswith(
        "2 in-distribution images could not be read and are left out; the first, "
    )
    assert images.startswith("2 images could not be read and are left out; the first, ")
    whole = distance.distance(
        f"folder:{photos}", **how(judge, photos).model_dump(exclude_unset=True), out=tmp_path / "d.parquet"
    ).record
    assert "left_out" not in whole.as_json()


def test_a_cached_decomposition_is_named_by_its_recipe(judge: str) -> None:
    own = core.encoder(judge)
    made = decomposition.recipe(own)
    recipe = {
        "labels": made.labels,
        "looks": made.styles,
        "count": made.count,
        "training": asdict(made.training),
    }
    assert made.key(own) == digest(own.version, json.dumps(recipe, sort_keys=True)).hex()


def test_a_wrong_key_of_a_suites_distance_is_named() -> None:
    with pytest.raises(SoritesError, match="unknown key 'distance.leves'"):
        parse({"name": "s", "distance": {"encoder": "cifar", "against": "stamps", "leves": 3}}, "s")
