from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites import core
from sorites.core import Generated, Model, Sample, Source, table
from sorites.core.errors import SoritesError
from sorites.evaluation import plan, runner
from sorites.evaluation.storage import folder
from sorites.evaluation.storage.record import describe
from sorites.suites.suite import Suite, parse

SUITE = parse(
    {
        "name": "small",
        "frame": {"resize": 64, "crop": 56},
        "shifts": ["gaussian_noise", "jpeg", {"name": "defocus_disk", "severities": [1.5, 4.0]}],
        "scorers": ["msp"],
    },
    "test",
)
ORDER = ["image_id", "model", "output", "scorer", "probe"]


def settled(frame: pl.LazyFrame | sorites.Run) -> pl.DataFrame:
    return frame.lazy().drop("run_id").sort(ORDER).collect()


@pytest.fixture
def once(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> pl.DataFrame:
    return settled(
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "once", refine=0.05)
    )


@pytest.mark.slow
def test_the_table_is_whole_and_true_to_its_schema(once: pl.DataFrame, photos: Path, tmp_path: Path) -> None:
    held = table.read(tmp_path / "once")
    assert table.check(held) == []
    grid = once.filter(~pl.col("probe"), pl.col("output") == "label")
    assert grid.height == 20 * (1 + 5 + 5 + 2)
    assert grid.filter(pl.col("shift") == "clean")["correct"].all()
    assert grid["error"].null_count() == grid.height
    assert once.filter(pl.col("output") == "ood")["score"].null_count() == 0
    assert set(once.filter(pl.col("shift") == "jpeg", ~pl.col("probe"))["level"]) == {1, 2, 3, 4, 5}


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"batch": 1}, {"batch": 7}, {"workers": 1}, {"workers": 3}])
def test_nothing_depends_on_batch_or_workers(
    once: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path, change: dict[str, int]
) -> None:
    again = sorites.run(
        SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "again", refine=0.05, **change
    )
    assert settled(again).equals(once)


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_the_source(
    once: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    turned_round = Source("folder", list(core.source(f"folder:{photos}"))[::-1])
    assert settled(
        sorites.run(SUITE, source=turned_round, models=[tiny()], out=tmp_path / "again", refine=0.05)
    ).equals(once)


@pytest.mark.slow
def test_a_limit_is_a_prefix(
    once: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    few = settled(
        sorites.run(
            SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "few", limit=5, refine=0.05
        )
    )
    some = settled(
        sorites.run(
            SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "some", limit=9, refine=0.05
        )
    )
    assert few["sample_id"].n_unique() == 5
    assert some.filter(pl.col("sample_id").is_in(few["sample_id"].implode())).equals(few)
    assert once.filter(pl.col("sample_id").is_in(few["sample_id"].implode())).equals(few)


@pytest.mark.slow
def test_another_seed_draws_other_noise(
    once: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    other = settled(
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "other", seed=1)
    )
    noise = pl.col("shift") == "gaussian_noise", pl.col("output") == "ood", ~pl.col("probe")
    assert other.filter(noise)["score"].to_list() != once.filter(noise)["score"].to_list()


class Interrupt(Exception):
    pass


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_ends_the_same(
    once: pl.DataFrame, photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    out = tmp_path / "again"
    settings = iter(range(6))

    def bar(what: str, steps: int) -> Callable[[int], None]:
        def tick(n: int) -> None:
            if next(settings, None) is None:
                raise Interrupt

        return tick

    recipe = SUITE.override(source=f"folder:{photos}", models=("tiny",), refine=0.05)
    with pytest.raises(Interrupt):
        runner.execute(runner.prepare(plan.make(recipe, models={"tiny": tiny()})), out, bar=bar, workers=1)
    finished = {path: path.stat().st_mtime_ns for path in (out / "predictions").glob("*.parquet")}
    assert 0 < len(finished) < 4 * 2
    seen = 0

    def counting(name: str = "tiny") -> Model:
        model = tiny(name)
        inner = model.forward

        def forward(images: list[np.ndarray]) -> core.Outputs:
            nonlocal seen
            seen += len(images)
            return inner(images)

        model.forward = forward
        return model

    runner.execute(runner.prepare(plan.make(recipe, models={"tiny": counting()})), out, workers=1)
    assert settled(table.read(out)).equals(once)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert seen < once.filter(pl.col("output") == "label").height


@pytest.mark.slow
def test_a_finished_run_does_nothing_again(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    recipe = SUITE.override(source=f"folder:{photos}", models=("tiny",))
    runner.execute(runner.prepare(plan.make(recipe, models={"tiny": tiny()})), tmp_path / "run")
    steps: list[int] = []

    def bar(what: str, total: int) -> Callable[[int], None]:
        steps.append(total)
        return lambda n: None

    runner.execute(runner.prepare(plan.make(recipe, models={"tiny": tiny()})), tmp_path / "run", bar=bar)
    assert steps == []


@pytest.mark.slow
def test_refinement_can_be_added_later_but_not_changed(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    def go(**more: float) -> pl.LazyFrame:
        return sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", **more)

    assert not go().collect()["probe"].any()
    assert go(refine=0.1).collect()["probe"].any()
    with pytest.raises(SoritesError, match="refine: 0.1 there, 0.2 here"):
        go(refine=0.2)


@pytest.mark.slow
def test_a_folder_of_another_run_is_refused_by_the_key_that_differs(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run")
    with pytest.raises(SoritesError, match=r"suite\.seed: 0 there, 3 here"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", seed=3)
    changed = tiny()
    changed.version = "2"
    with pytest.raises(SoritesError, match="tiny: version 1 there, 2 here"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[changed], out=tmp_path / "run")


def test_two_runs_into_one_folder(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    recipe = SUITE.override(source=f"folder:{photos}", models=("tiny",))
    held = plan.make(recipe, models={"tiny": tiny()})
    with (
        folder.open_run(tmp_path / "run", held, describe(held)),
        pytest.raises(SoritesError, match="another process is writing"),
    ):
        runner.execute(runner.prepare(held), tmp_path / "run")


def test_a_ood_folder_is_not_written_into(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SoritesError, match="not empty and not a run folder"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path)


@pytest.mark.slow
def test_a_changed_source_is_refused(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    samples = list(core.source(f"folder:{photos}"))
    sorites.run(SUITE, source=Source("folder", samples), models=[tiny()], out=tmp_path / "run")
    with pytest.raises(SoritesError, match="other samples"):
        sorites.run(SUITE, source=Source("folder", samples[1:]), models=[tiny()], out=tmp_path / "run")


@pytest.mark.slow
def test_bad_images_become_error_rows(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    def broken() -> core.ImageU8:
        raise sorites.SoritesError("truncated")

    samples = [*core.source(f"folder:{photos}"), Sample("bad/x.png", Generated(broken), label=0)]
    held = sorites.run(
        SUITE, source=Source("folder", samples), models=[tiny()], out=tmp_path / "run", refine=0.1
    ).collect()
    bad = held.filter(pl.col("sample_id") == "bad/x.png")
    assert bad.height == 2 * 13
    assert bad["error"].unique().to_list() == ["truncated"]
    assert bad["correct"].null_count() == bad["pred"].null_count() == bad.height
    assert held.filter(pl.col("error").is_not_null()).height == bad.height
    assert sorites.accuracy(held, by=["model"])["missing"].item() == 13


def test_a_model_that_fails_on_one_image_keeps_the_others(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    model = tiny()
    inner, hated = model.forward, core.to_uint8(np.zeros((56, 56, 3), np.float32))

    def forward(images: list[np.ndarray]) -> core.Outputs:
        if any(np.array_equal(p, hated) for p in images):
            raise ValueError("I do not like black")
        return inner(images)

    model.forward = forward
    samples = [*core.source(f"folder:{photos}"), Sample("black", Generated(lambda: hated), label=0)]
    held = sorites.run(
        SUITE, source=Source("folder", samples), models=[model], out=tmp_path / "run", shifts=["jpeg"]
    ).collect()
    failed = held.filter(pl.col("error").is_not_null())
    assert failed["sample_id"].unique().to_list() == ["black"]
    assert "I do not like black" in failed["error"][0]


def test_a_model_broken_from_the_start_is_an_error_before_any_work(photos: Path, tmp_path: Path) -> None:
    def forward(images: list[np.ndarray]) -> core.Outputs:
        raise RuntimeError("no weights")

    with pytest.raises(SoritesError, match="grey image.*no weights"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[Model("broken", forward)], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_wrong_number_of_logits_is_named(photos: Path, tmp_path: Path) -> None:
    def forward(images: list[np.ndarray]) -> core.Outputs:
        return core.Outputs(np.zeros((len(images), 7), np.float32))

    with pytest.raises(SoritesError, match="gives 7 logits for 1000 labels"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[Model("seven", forward)], out=tmp_path / "run")


def test_infinite_logits_are_error_rows(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    model = tiny()
    inner = model.forward
    model.forward = lambda images: core.Outputs(
        np.where([[p[0, 0, 0] > 150] for p in images], np.nan, inner(images).logits).astype(np.float32)
    )
    held = sorites.run(
        SUITE, source=f"folder:{photos}", models=[model], out=tmp_path / "run", shifts=["jpeg"]
    ).collect()
    assert 0 < held["error"].count() < held.height
    assert set(held["error"].drop_nulls()) == {"model tiny returned logits that are not finite"}


@pytest.mark.slow
def test_features_are_kept_when_asked(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    from safetensors import safe_open

    def go(**more: bool) -> pl.DataFrame:
        return sorites.run(
            SUITE, source=f"folder:{photos}", models=[tiny()], out=tmp_path / "run", shifts=["jpeg"], **more
        ).collect()

    go()
    held = go(keep_features=True)
    ids: list[str] = []
    for path in sorted((tmp_path / "run" / "features").iterdir()):
        with safe_open(path, "numpy") as file:
            here = json.loads(file.metadata()["image_id"])
            assert file.get_tensor("features").shape == (len(here), 216)
            assert file.get_tensor("logits").shape == (len(here), 4)
            ids += here
    assert sorted(ids) == sorted(held.filter(pl.col("output") == "label")["image_id"])


@pytest.mark.slow
def test_any_tool_reads_the_table(once: pl.DataFrame, tmp_path: Path) -> None:
    import duckdb

    glob = tmp_path / "once" / "predictions" / "*.parquet"
    asked = duckdb.sql(
        f"select shift, avg(correct::int) a, count(*) n from '{glob}' where output = 'label' and not probe"
        " group by 1"
    )
    for shift, value, n in asked.fetchall():
        ours = sorites.accuracy(once.with_columns(run_id=pl.lit("x")), by=["shift"]).filter(
            pl.col("shift") == shift
        )
        assert (ours["value"].item(), ours["n"].item()) == (pytest.approx(value), n)


def test_unknown_names_ask_did_you_mean(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no shift named 'jpge'. Did you"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], shifts=["jpge"], out=tmp_path / "a")
    with pytest.raises(SoritesError, match="source named 'foldr'. Did you"):
        sorites.run(SUITE, source=f"foldr:{photos}", models=[tiny()], out=tmp_path / "b")
    with pytest.raises(SoritesError, match="model named 'lite9'. Did you"):
        sorites.run(SUITE, source=f"folder:{photos}", models=["lite9"], out=tmp_path / "c")
    with pytest.raises(SoritesError, match="named 'dmo'. Did you mean demo"):
        sorites.run("dmo", models=[tiny()])
    with pytest.raises(SoritesError, match="engine named 'locl'. Did you"):
        sorites.run(SUITE, source=f"folder:{photos}", models=[tiny()], engine="locl", out=tmp_path / "d")
    with pytest.raises(SoritesError, match="has no models"):
        sorites.run(Suite(name="x"), source=f"folder:{photos}", out=tmp_path / "e")
