"""Scorers fitted inside a run: from training images that the models see first, kept, resumed, and
the same in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import polars as pl
import pytest

import sorites
from sorites import core
from sorites.core import Generated, Model, Outputs, Sample, Source, table
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation import fit as fitting
from sorites.evaluation import plan, runner
from sorites.evaluation.fit import RECORD
from sorites.evaluation.integrity.check import check
from sorites.io.listed import write_listed
from sorites.suites.suite import Suite, parse

SCORERS = ["msp", "knn(k=3)", "mds", "react", "ash_b", "vim(dim=9)"]
SUITE = parse(
    {
        "name": "small",
        "frame": {"resize": 32},
        "shifts": ["contrast"],
        "scorers": SCORERS,
        "labels": ["a", "b", "c", "d"],
    },
    "test",
)
WIDE = 24
_weight = np.random.default_rng(5).normal(0, 3, (4, WIDE))
HEAD = (_weight.astype(np.float32), (-_weight @ np.tile([0.5, 0.2], WIDE // 2)).astype(np.float32))
"""No class is ahead on a grey image."""


def describe(image: np.ndarray) -> np.ndarray:
    rows = np.array_split(image.astype(np.float32) / 255, 4, axis=0)
    return np.concatenate(
        [[c.mean(), c.std()] for row in rows for c in np.array_split(row, 3, axis=1)]
    ).astype(np.float32)


def linear(name: str = "linear", head: bool = True) -> Model:
    def forward(images: list[np.ndarray]) -> Outputs:
        features = np.stack([describe(p) for p in images])
        logits = np.stack([row.astype(np.float64) @ HEAD[0].T + HEAD[1] for row in features])
        return Outputs(logits.astype(np.float32), features)

    return Model(name, forward, head=HEAD if head else None, version="1")


def images(kind: str, count: int, split: str = "", label: int | None = 0) -> list[Sample]:
    """Images of coloured patches, each its own, labelled 0 to 3 in turn."""

    def load(name: str) -> Callable[[], np.ndarray]:
        patches = np.random.default_rng(crc32(name.encode())).integers(0, 256, (4, 3, 3), np.uint8)
        return lambda: patches.repeat(10, axis=0).repeat(14, axis=1)

    names = [f"{kind}{i:03d}" for i in range(count)]
    return [
        Sample(n, Generated(load(n)), None if label is None else (label + i) % 4, split=split)
        for i, n in enumerate(names)
    ]


@pytest.fixture
def asked() -> Source:
    return Source("asked", images("a", 20))


@pytest.fixture
def in_distribution() -> Source:
    return Source("id", images("f", 150, "train") + images("v", 10, "val"))


Run = Callable[..., pl.DataFrame]


@pytest.fixture
def run(tmp_path: Path, asked: Source, in_distribution: Source) -> Run:
    def go(suite: Suite = SUITE, out: str = "run", **more: object) -> pl.DataFrame:
        given = {"source": asked, "models": [linear()], "fit": in_distribution, **more}
        return sorites.run(suite, out=tmp_path / out, **given).collect()  # type: ignore[arg-type]

    return go


def settled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("run_id").sort("image_id", "model", "output", "scorer", "probe")


def test_every_scorer_has_its_rows_and_they_are_those_of_a_hand_fit(
    run: Run, asked: Source, in_distribution: Source
) -> None:
    held = run()
    assert table.check(held) == []
    scored = held.filter(pl.col("output") == "ood")
    assert scored["scorer"].unique().sort().to_list() == sorted(SCORERS)
    assert scored.height == 20 * 6 * len(SCORERS)
    assert scored["score"].null_count() == 0
    framed = SUITE.frame
    assert framed is not None
    seen, shown = (
        linear()([framed(s.load()) for s in in_distribution], True),
        linear()([framed(s.load()) for s in asked], True),
    )
    clean = scored.filter(pl.col("shift") == "clean")
    for name in ("knn(k=3)", "mds", "react", "ash_b", "vim(dim=9)"):
        by_hand = core.scorer(name).fit([(seen, [s.label for s in in_distribution])], HEAD)
        expected = dict(zip([s.id for s in asked], by_hand(shown), strict=True))
        for sample, score in clean.filter(pl.col("scorer") == name).select("sample_id", "score").iter_rows():
            assert score == pytest.approx(float(expected[sample]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"batch": 1}, {"batch": 7}, {"workers": 1}, {"workers": 3}])
def test_nothing_depends_on_batch_or_workers(run: Run, change: dict[str, int]) -> None:
    assert settled(run(out="again", **change)).equals(settled(run()))


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_the_training_images(run: Run, in_distribution: Source) -> None:
    turned_round = Source("id", list(in_distribution)[::-1])
    assert settled(run(out="again", fit=turned_round)).equals(settled(run()))


@pytest.mark.slow
def test_the_models_see_each_training_image_once(run: Run, tmp_path: Path) -> None:
    run()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "fits").iterdir()}
    told = json.loads((tmp_path / "run" / RECORD).read_text())["models"]["linear"]
    assert len(kept) == 3
    assert told["left_out"] == 0
    assert told["scorers"]["knn(k=3)"] == {"images": 160, "bank": 160}
    assert told["scorers"]["mds"] == {"images": 160, "classes": 4}
    next((tmp_path / "run" / "predictions").glob("contrast-*")).unlink()
    blind = linear()
    inner, seen = blind.forward, []

    def forward(images: list[np.ndarray]) -> Outputs:
        seen.extend(images)
        return inner(images)

    blind.forward = forward
    before = settled(run(out="whole"))
    assert settled(run(models=[blind])).equals(before)
    assert len(seen) <= 4 + 16 * 5  # the images on which the model is tried, and one slice
    assert {path: path.stat().st_mtime_ns for path in kept if path.suffix == ".safetensors"} == {
        path: at for path, at in kept.items() if path.suffix == ".safetensors"
    }


def test_a_finished_run_fits_nothing_again_unless_the_record_is_missing(run: Run, tmp_path: Path) -> None:
    run()
    path = tmp_path / "run" / RECORD
    data, time = path.read_bytes(), path.stat().st_mtime_ns
    run()
    assert path.stat().st_mtime_ns == time
    path.unlink()
    run()
    assert path.read_bytes() == data


def test_a_fit_takes_a_split_and_a_limit(tmp_path: Path, asked: Source, in_distribution: Source) -> None:
    def training(**more: object) -> list[Sample]:
        recipe = parse({**SUITE.model_dump(), "models": ["linear"], "fit": {"source": "id", **more}}, "test")
        return list(plan.make(recipe, asked, {"linear": linear()}, in_distribution).fit)

    assert len(training()) == 160
    assert {s.split for s in training(split="val")} == {"val"}
    assert [s.id for s in training(limit=7)] == [s.id for s in training()][:7]
    with pytest.raises(SoritesError, match="the split 'test'; its splits"):
        training(split="test")


def test_other_training_images_are_another_run(run: Run, in_distribution: Source) -> None:
    run()
    with pytest.raises(SoritesError, match="contains another run \\(fit: "):
        run(fit=Source("id", list(in_distribution)[1:]))


def test_a_damaged_list_of_training_images_is_named(run: Run, tmp_path: Path) -> None:
    run()
    path = tmp_path / "run" / "training.parquet"
    whole = path.read_bytes()
    path.write_bytes(b"PAR1")
    with pytest.raises(SoritesError, match="training.parquet cannot be"):
        check(str(tmp_path / "run"))
    run()
    assert path.read_bytes() == whole
    write_listed(tmp_path / "run" / "run.json", "training.parquet", b"of other images")
    path.write_bytes(b"")
    with pytest.raises(SoritesError, match="training.parquet cannot be"):
        run()


def test_a_folder_without_predictions_may_be_deleted(
    run: Run, tmp_path: Path, in_distribution: Source
) -> None:
    run()
    for shard in (tmp_path / "run" / "predictions").glob("*.parquet"):
        shard.unlink()
    with pytest.raises(
        SoritesError,
        match="has no predictions yet: delete",
    ):
        run(fit=Source("id", list(in_distribution)[1:]))


def test_without_training_images_scorers_that_need_some_are_refused_by_name(run: Run, tmp_path: Path) -> None:
    with pytest.raises(
        SoritesError,
        match=(r"mds, react, vim\(dim=9\): must"),
    ):
        run(fit=None)
    assert not (tmp_path / "run").exists()
    assert run(fit=None, only_scorers=["msp", "ash_b"])["error"].null_count() == 20 * 6 * 3


@pytest.mark.parametrize("name", ["knn", "nnguide"])
def test_too_few_training_images_are_refused_before_any_is_looked_at(
    run: Run, tmp_path: Path, name: str
) -> None:
    said = rf"^scorer {name}\(k=161\): .*k=161.* got 160"
    with pytest.raises(SoritesError, match=said):
        run(only_scorers=[f"{name}(k=161)"])
    assert not (tmp_path / "run").exists()


def test_one_scorer_that_cannot_be_fitted_does_not_cancel_the_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few images for one scorer, and a library that fails for another: their scores are missing."""

    def fails(self: object, batches: object, head: object = None) -> None:
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(type(core.scorer("mds")), "fit", fails)
    names = ["knn(k=161)", "mds", "knn(k=3)", "msp"]
    with pytest.warns(Notice) as told:
        held = run(only_scorers=names).filter(pl.col("output") == "ood")
    assert [w.message.code for w in told] == ["scorer_not_fitted"] * 2  # type: ignore[union-attr]
    missing = {name: part["score"].null_count() / part.height for (name,), part in held.group_by("scorer")}
    assert missing == {"knn(k=161)": 1, "mds": 1, "knn(k=3)": 0, "msp": 0}
    notes = json.loads((tmp_path / "run" / RECORD).read_text())["models"]["linear"]["notes"]
    assert notes["mds"].endswith("LinAlgError: Singular matrix")
    assert set(held.filter(scorer="mds")["error"]) == {notes["mds"]}


def test_training_images_that_are_judged_too_are_told(asked: Source, in_distribution: Source) -> None:
    def said(source: str, fit: str, known: Source) -> str:
        suite = SUITE.override(source=source, fit={"source": fit}, limit=15)
        return fitting.note_overlap(plan.make(suite, asked, fit=known))

    assert said("asked", "id", in_distribution) == ""
    assert (
        said("asked", "asked", asked)
        == "note: 15 of 20 training images are also in the test set; their OOD scores are biased low"
    )
    assert said("folder:a", "folder:./a", asked).startswith("note: 15 of 20")
    assert said("folder:a", "folder:b", asked) == ""


def test_what_a_model_does_not_show_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="the model's last linear layer,"):
        run(models=[linear("bare", head=False)])
    for name, what in (
        ("odin", "gradient"),
        ("rankfeat", "feature maps"),
        ("gram", "layers"),
        ("neglabel", "text encoder"),
    ):
        with pytest.raises(SoritesError, match=f"{name} needs .*{what}.* linear does not provide"):
            run(only_scorers=[name])
    plain = Model("plain", lambda p: Outputs(linear().forward(p).logits))
    with pytest.raises(SoritesError, match="knn needs the model's features"):
        run(models=[plain], only_scorers=["knn"])
    wrong = linear()
    wrong.head = (HEAD[0] * 2, HEAD[1])
    with pytest.raises(SoritesError, match="the head of linear does not"):
        run(models=[wrong])
    assert not (tmp_path / "run").exists()


def test_training_images_that_cannot_be_used_are_left_out_and_counted(
    run: Run, tmp_path: Path, in_distribution: Source
) -> None:
    def broken() -> np.ndarray:
        raise SoritesError("truncated")

    odd = [Sample("x0", Generated(broken), 0), Sample("x1", in_distribution.samples[0].image, 3)]
    three = linear()
    three.labels, three.head = ("a", "b", "c"), (HEAD[0][:3], HEAD[1][:3])
    inner = three.forward
    three.forward = lambda p: Outputs(inner(p).logits[:, :3], inner(p).features)  # type: ignore[index]
    unknown = sum(s.label == 3 for s in in_distribution)
    run(models=[three], fit=Source("id", [*in_distribution, *odd]))
    told = json.loads((tmp_path / "run" / RECORD).read_text())["models"]["linear"]
    assert told["left_out"] == unknown + 2
    assert told["scorers"]["mds"] == {"images": 160 - unknown, "classes": 3}


@pytest.mark.slow
def test_labels_are_places_in_the_models_own_logits(run: Run) -> None:
    """A model with its classes in another order and the same numbers gives the same scores."""
    turned = linear()
    turned.labels, turned.head = ("d", "c", "b", "a"), (HEAD[0][::-1], HEAD[1][::-1])
    inner = turned.forward
    turned.forward = lambda p: Outputs(inner(p).logits[:, ::-1], inner(p).features)  # type: ignore[index]
    scorers = ["mds", "she"]
    here = settled(run(only_scorers=scorers))
    there = settled(run(out="turned", models=[turned], only_scorers=scorers))
    np.testing.assert_allclose(
        here.filter(pl.col("output") == "ood")["score"].drop_nulls().to_numpy(),
        there.filter(pl.col("output") == "ood")["score"].drop_nulls().to_numpy(),
        rtol=1e-5,
    )


def test_a_scorer_that_fails_on_one_image_is_a_row_with_its_error(run: Run) -> None:
    some = Source("id", [s for s in images("f", 60) if s.label == 2] + images("g", 9, label=None))
    held = run(only_scorers=["she", "msp"], fit=some).filter(pl.col("scorer") == "she")
    failed = held.filter(pl.col("error").is_not_null())
    assert failed.height > 0
    assert all("was classified correctly" in error for error in failed["error"])
    assert failed.select("score", "correct").null_count().row(0) == (failed.height, failed.height)


def test_sizes_are_known_beforehand(asked: Source, in_distribution: Source, tmp_path: Path) -> None:
    recipe = parse({**SUITE.model_dump(), "models": ["linear"], "fit": {"source": "id"}}, "test")
    made = plan.make(recipe, asked, {"linear": linear()}, in_distribution)
    assert runner.prepare(made).training_bytes() == 160 * 4 * (WIDE + 4)
    runner.execute(runner.prepare(made), tmp_path / "run", keep_features=True)
    kept = sum(
        path.stat().st_size
        for part in ("features", "fits", "heads")
        for path in (tmp_path / "run" / part).rglob("*.s*")
    )
    assert kept == pytest.approx(runner.prepare(made).feature_bytes(), rel=0.5)


@pytest.mark.slow
def test_scorers_that_look_inside_run_on_a_torch_module_whatever_the_batch(run: Run) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    layers = [
        torch.nn.Conv2d(3, 4, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 6, 3, 2, 1),
        torch.nn.ReLU(),
    ]
    network = torch.nn.Sequential(
        *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 4)
    )
    network.sorites = {"size": (32, 32), "labels": ["a", "b", "c", "d"]}
    network.__name__ = "network"
    scorers = ["odin", "rankfeat", "rankfeat(blocks=1)", "gram(powers=2)"]
    held = settled(run(models=[network], only_scorers=scorers))
    scored = held.filter(pl.col("output") == "ood")
    assert scored["scorer"].unique().sort().to_list() == sorted(scorers)
    assert scored.filter(~pl.col("scorer").str.starts_with("gram"))["score"].null_count() == 0
    said = scored["error"].drop_nulls().unique().to_list()
    assert all("no training image was predicted as class" in error for error in said)
    assert settled(run(out="again", models=[network], only_scorers=scorers, batch=3, workers=1)).equals(held)


@pytest.mark.slow
def test_a_scorer_with_too_few_images_has_no_scores_and_the_run_goes_on(run: Run, tmp_path: Path) -> None:
    alone = Source("id", images("f", 4))
    with pytest.warns(
        UserWarning,
        match="training images per class, got",
    ):
        held = run(only_scorers=["mds", "knn(k=3)"], fit=alone).filter(pl.col("output") == "ood")
    missing = held.filter(pl.col("scorer") == "mds")
    assert missing["score"].null_count() == missing.height > 0
    assert set(missing["error"]) == {
        json.loads((tmp_path / "run" / RECORD).read_text())["models"]["linear"]["notes"]["mds"]
    }
    assert held.filter(pl.col("scorer") == "knn(k=3)")["score"].null_count() == 0
    assert sorites.auroc(held, framework="model-specific").filter(pl.col("scorer") == "mds")[
        "value"
    ].to_list() in ([], [None])
    with pytest.warns(UserWarning, match="cannot be shown"):
        page = sorites.report(tmp_path / "run", tmp_path / "page.html").read_text(encoding="utf-8")
    assert "at least two different training images per class" in page
