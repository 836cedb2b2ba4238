"""Parameters of scorers chosen on validation images as OpenOOD does, and scorers fitted only on
images a model has right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score
from tests.evaluation.test_fit import HEAD, images, linear, settled

import sorites
from sorites import core
from sorites.core import Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.evaluation import fit as fitted
from sorites.evaluation import plan, runner
from sorites.evaluation.fit import RECORD, note_overlap
from sorites.evaluation.rescore import score
from sorites.evaluation.storage import record
from sorites.suites.suite import Suite, parse

OPENOOD: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "odin": {"temperature": (1, 10, 100, 1000), "eps": (0.0014, 0.0028)},
    "knn": {"k": (50, 100, 200, 500, 1000)},
    "ash_b": {"percentile": (65, 70, 75, 80, 85, 90, 95)},
    "react": {"percentile": (85, 90, 95, 99)},
    "vim": {"dim": (256, 1000)},
    "scale": {"percentile": (65, 70, 75, 80, 85, 90, 95)},
    "gen": {"gamma": (0.01, 0.1, 0.5, 1, 2, 5, 10), "top": (10, 50, 100, 200, 500, 1000)},
    "nci": {"alpha": (0.0001, 0.001, 0.01, 0.1)},
}
"""The sweeps of OpenOOD's configs/postprocessors/*.yml at 3c35632, for the methods whose APS_mode is on."""
SCORERS = [name for name in OPENOOD if name != "odin"]
FIT = {"source": "known", "split": "train", "search": True, "validation": {"split": "val"}}
BASE = {
    "name": "small",
    "frame": {"resize": 32},
    "shifts": ["contrast"],
    "scorers": ["msp", "knn(k=3)", *SCORERS],
    "labels": ["a", "b", "c", "d"],
}


def suite(**fit: Any) -> Suite:
    return parse({**BASE, "fit": {**FIT, **fit}}, "test")


def known(training: int = 150, validation: int = 70) -> Source:
    return Source("known", images("f", training, "train") + images("v", validation, "val"))


Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def go(recipe: Suite, out: str = "run", training: Source | None = None, **more: Any) -> Path:
        recipe = recipe.model_copy(update={"models": ("linear",)})
        made = plan.make(recipe, Source("asked", images("a", 20)), {"linear": linear()}, training or known())
        return runner.execute(runner.prepare(made), tmp_path / out, **more)

    return go


def seen(samples: Sequence[Sample]) -> Outputs:
    framed = suite().frame
    assert framed is not None
    outputs = linear()([framed(sample.load()) for sample in samples], True)
    outputs.ids = [sample.id for sample in samples]
    return outputs


def right(samples: Sequence[Sample]) -> np.ndarray:
    logits = seen(samples).logits
    assert logits is not None
    return logits.argmax(axis=1) == [sample.label for sample in samples]


def by_hand(
    name: str, training: Sequence[Sample], in_distribution: Sequence[Sample], ood: Sequence[Sample]
) -> dict[str, Any]:
    """OpenOOD's loop: all combinations, the first parameter fastest, AUROC of in-distribution against
    OOD; the first best wins.
    """
    ranges = OPENOOD[name]
    lesson, labels = seen(training), [sample.label for sample in training]
    found: list[tuple[float, dict[str, Any]]] = []
    for values in product(*reversed(ranges.values())):
        params = dict(zip(ranges, reversed(values), strict=True))
        if name == "knn" and params["k"] > len(training):
            continue
        scorer = core.scorer(name, **params).fit([(lesson, labels)], HEAD)
        scores = np.concatenate([scorer(seen(in_distribution)), scorer(seen(ood))])
        found.append((roc_auc_score([0] * len(in_distribution) + [1] * len(ood), scores), params))
    largest = max(value for value, _ in found)
    return {
        "chosen": next(p for value, p in found if value > largest - 1e-12),
        "auroc": largest,
        "tried": len(found),
    }


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RECORD).read_text())["models"]["linear"]  # type: ignore[no-any-return]


def check_search(
    folder: Path, training: Sequence[Sample], in_distribution: Sequence[Sample], ood: Sequence[Sample]
) -> None:
    found = told(folder)["search"]
    assert set(found) == set(SCORERS), (
        "a scorer without a range, or with its parameter given, keeps what it has"
    )
    asked = images("a", 20)
    rows = sorites.read(folder).collect().filter(pl.col("shift") == "clean", pl.col("output") == "ood")
    for name in SCORERS:
        expected = by_hand(name, training, in_distribution, ood)
        assert found[name]["chosen"] == expected["chosen"], name
        assert found[name]["auroc"] == pytest.approx(expected["auroc"], abs=1e-12)
        assert sum("auroc" in each for each in found[name]["tried"]) == expected["tried"]
        fresh = core.scorer(name, **expected["chosen"]).fit(
            [(seen(training), [s.label for s in training])], HEAD
        )
        scores = dict(zip([s.id for s in asked], fresh(seen(asked)), strict=True))
        for sample, value in rows.filter(pl.col("scorer") == name).select("sample_id", "score").iter_rows():
            assert value == pytest.approx(float(scores[sample]), rel=1e-4), name


@pytest.mark.slow
def test_openood_aps_on_right_and_wrong_images_equals_a_brute_force_search(run: Run) -> None:
    """ImageNet-ES, Table 3, model-specific: validation images that the model has right against
    those it has wrong.
    """
    every = list(known())
    training, validation = ([s for s in every if s.split == split] for split in ("train", "val"))
    good = right(validation)
    pools = [
        [s for s, r in zip(validation, good, strict=True) if r is wanted] for wanted in (np.True_, np.False_)
    ]
    check_search(run(suite()), training, *pools)


@pytest.mark.slow
def test_openood_aps_against_ood_images_equals_a_brute_force_search(run: Run, tmp_path: Path) -> None:
    """ImageNet-ES, Table 3, semantics-centric: all validation images against a source of OOD
    ones, of any class.
    """
    (tmp_path / "ood" / "zebra").mkdir(parents=True)
    rng = np.random.default_rng(3)
    for i in range(15):
        grey = rng.integers(100, 160, (40, 42, 1), np.uint8).repeat(3, axis=2)
        Image.fromarray(grey).save(tmp_path / "ood" / "zebra" / f"{i}.png")
    recipe = suite(validation={"split": "val", "ood": f"folder:{tmp_path / 'ood'}"})
    ood = list(core.source(f"folder:{tmp_path / 'ood'}", imagenet()))
    every = list(known())
    check_search(run(recipe), *([s for s in every if s.split == split] for split in ("train", "val")), ood)


@pytest.mark.slow
def test_odin_is_searched_through_the_network(tmp_path: Path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 4)).eval()
    net.sorites = {"size": 16}  # type: ignore[assignment]
    recipe = parse({**BASE, "scorers": ["odin"], "fit": FIT}, "test")
    source = known()
    from sorites.models.python import as_model

    model = as_model("net", net)
    made = plan.make(
        recipe.model_copy(update={"models": ("net",)}),
        Source("asked", images("a", 4)),
        {"net": model},
        source,
    )
    folder = runner.execute(runner.prepare(made), tmp_path / "run")
    found = json.loads((folder / RECORD).read_text())["models"]["net"]["search"]["odin"]
    validation, frame = [s for s in source if s.split == "val"], recipe.frame
    assert frame is not None
    shown = [frame(s.load()) for s in validation]
    logits = model(shown, True).logits
    assert logits is not None
    wrong = logits.argmax(axis=1) != [s.label for s in validation]
    best: tuple[float, dict[str, float]] = (0.0, {})
    for eps, temperature in product((0.0014, 0.0028), (1, 10, 100, 1000)):
        scorer = core.scorer("odin", temperature=temperature, eps=eps)
        rows = scorer.look(model, shown, True)
        assert rows is not None
        value = roc_auc_score(wrong, scorer(Outputs(logits, inside={scorer.name: rows})))
        if value > best[0] + 1e-12:
            best = value, {"temperature": temperature, "eps": eps}
    assert (found["chosen"], len(found["tried"])) == (best[1], 8)
    assert found["auroc"] == pytest.approx(best[0], abs=1e-12)
    assert set(sorites.read(folder).collect()["scorer"].drop_nulls()) == {"odin"}


@pytest.mark.slow
def test_table_3_fit_on_s3_plus_takes_only_images_that_the_model_classifies_correctly(run: Run) -> None:
    source = Source("known", images("f", 400, "train"))
    recipe = parse(
        {**BASE, "scorers": ["knn(k=3)", "mds", "react"], "fit": {"source": "known", "only": "correct"}},
        "test",
    )
    folder = run(recipe, training=source)
    good = right(list(source))
    training = [s for s, r in zip(source, good, strict=True) if r]
    assert 40 < len(training) < 360
    about = told(folder)
    assert (about["left_out"], about["wrong"]) == (0, 400 - len(training))
    assert about["scorers"]["knn(k=3)"] == {"images": len(training), "bank": len(training)}
    asked, lesson = images("a", 20), seen(training)
    rows = sorites.read(folder).collect().filter(pl.col("shift") == "clean")
    for name in ("knn(k=3)", "mds", "react"):
        scores = core.scorer(name).fit([(lesson, [s.label for s in training])], HEAD)(seen(asked))
        expected = dict(zip([s.id for s in asked], scores, strict=True))
        for sample, value in rows.filter(pl.col("scorer") == name).select("sample_id", "score").iter_rows():
            assert value == pytest.approx(float(expected[sample]), rel=1e-4)


def test_right_is_asked_of_validation_images_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ood").mkdir()
    Image.fromarray(np.full((40, 42, 3), 90, np.uint8)).save(tmp_path / "ood" / "one.png")
    recipe = parse({**BASE, "scorers": ["ash_b"]}, "test")
    fit = {
        **FIT,
        "only": "correct",
        "validation": {"split": "val", "ood": f"folder:{tmp_path / 'ood'}"},
    }
    found = told(run(parse({**recipe.model_dump(), "fit": fit}, "test")))["search"]["ash_b"]
    in_distribution = [s for s in known() if s.split == "val"]
    in_distribution = [s for s, r in zip(in_distribution, right(in_distribution), strict=True) if r]
    ood = list(core.source(f"folder:{tmp_path / 'ood'}", imagenet()))
    assert found["auroc"] == pytest.approx(
        by_hand("ash_b", in_distribution, in_distribution, ood)["auroc"], abs=1e-12
    )


@pytest.mark.slow
def test_a_searched_run_is_continued_with_what_it_chose(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(suite())
    before = settled(sorites.read(folder).collect())
    next((folder / "predictions").glob("contrast-*")).unlink()

    def again(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(fitted, "best", again)
    assert settled(sorites.read(run(suite())).collect()).equals(before)


@pytest.mark.slow
def test_a_scorer_added_later_is_searched_as_the_run_would_have(run: Run) -> None:
    whole = sorites.read(run(suite(), out="whole")).collect()
    without = parse({**suite().model_dump(), "scorers": ["msp"]}, "test")
    folder = run(without, out="later", keep_features=True)
    score(folder, ["knn", "ash_b"])
    later = sorites.read(folder).collect()
    for name in ("knn", "ash_b"):
        ours, theirs = (
            settled(t.filter(pl.col("scorer") == name, ~pl.col("probe")))["score"] for t in (later, whole)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert set(told(folder)["search"]) == {"knn", "ash_b"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:some images of")
def test_the_page_says_what_was_chosen(run: Run, tmp_path: Path) -> None:
    folder = run(parse({**BASE, "scorers": ["ash_b"], "fit": FIT}, "test"))
    page = sorites.report(folder, tmp_path / "page.html").read_text(encoding="utf-8")
    percentile = told(folder)["search"]["ash_b"]["chosen"]["percentile"]
    assert f"<dt>chosen for linear</dt><dd>ash_b percentile {percentile}</dd>" in page


def test_new_keys_move_the_id_only_where_they_are_set() -> None:
    def causes(**fit: Any) -> dict[str, Any]:
        recipe = parse(
            {
                **BASE,
                "models": ["linear"],
                "scorers": ["ash_b"],
                "fit": {"source": "known", "split": "train", **fit},
            },
            "test",
        )
        made = plan.make(recipe, Source("asked", images("a", 3)), {"linear": linear()}, known())
        return record.describe(made).as_json()

    plain = causes()
    assert plain.keys() == {
        "run_id",
        "suite",
        "fit",
        "labels",
        "settings",
        "shifts",
        "scorers",
        "models",
        "versions",
    }
    assert (
        len(
            {
                plain["run_id"],
                causes(only="correct")["run_id"],
                causes(search=True, validation={"split": "val"})["run_id"],
            }
        )
        == 3
    )


def test_candidates_come_in_openood_s_order() -> None:
    assert list(core.scorer_candidates("odin").values())[:5] == [
        *({"temperature": t, "eps": 0.0014} for t in (1, 10, 100, 1000)),
        {"temperature": 1, "eps": 0.0028},
    ]
    assert list(core.scorer_candidates("knn(bank=7)")) == [
        f"knn(bank=7{f', k={k}' if k != 50 else ''})" for k in OPENOOD["knn"]["k"]
    ]
    assert (
        core.scorer_candidates("knn(k=3)")
        == core.scorer_candidates("msp")
        == core.scorer_candidates("dice")
        == {}
    )
    for name, ranges in OPENOOD.items():
        assert len(core.scorer_candidates(name)) == np.prod([len(values) for values in ranges.values()])


@pytest.mark.parametrize(
    ("fit", "says"),
    [
        ({"search": True}, "search needs validation images"),
        ({"validation": "folder:x"}, "used by a search only"),
        ({"search": True, "validation": {"limit": 3}}, "expected a source or a split"),
        ({"search": True, "validation": {"split": "val", "oood": "x"}}, "Did you mean ood"),
        ({"only": "wrong"}, "fit.only"),
    ],
)
def test_a_suite_says_what_is_wrong(fit: dict[str, Any], says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        parse({**BASE, "fit": {"source": "known", **fit}}, "test")


def test_what_cannot_be_searched_is_said(run: Run) -> None:
    with pytest.raises(SoritesError, match="150 of 150 validation images"):
        run(suite(validation={"split": "train"}))
    bare = Source("known", images("f", 20, "train", None) + images("v", 9, "val", None))
    with pytest.raises(SoritesError, match="have no labels"):
        run(suite(), training=bare)
    with pytest.raises(SoritesError, match='only = "correct" needs'):
        run(parse({**BASE, "fit": {"source": "known", "only": "correct"}}, "test"), training=bare)
    alike = Source("known", images("f", 60, "train") + [s for s in images("v", 40, "val") if right([s])[0]])
    with pytest.raises(SoritesError, match=r"linear has \d+ in-distribution and 0 OOD validation images"):
        run(parse({**BASE, "scorers": ["ash_b"], "fit": FIT}, "test"), training=alike)


def test_validation_images_that_are_judged_are_noted() -> None:
    recipe = parse({**BASE, "source": "known", "fit": FIT}, "test")
    made = plan.make(recipe, Source("known", images("v", 5)), None, known())
    assert (
        note_overlap(made)
        == "note: 5 of 70 validation images are also in the test set; parameters were chosen on them"
    )
    assert note_overlap(plan.make(recipe, Source("known", images("a", 5)), None, known())) == ""
