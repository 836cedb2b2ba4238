"""A run's predictions, exported as text and imported again, give the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.conftest import CLASSES

import sorites
from sorites import metrics
from sorites.core import METRICS, Model, table
from sorites.core.errors import SoritesError
from sorites.evaluation.imports.write import import_predictions
from sorites.evaluation.integrity.check import check
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.record import read_record
from sorites.reports.figures.run_sheet import run_sheet
from sorites.suites.suite import parse

pytestmark = pytest.mark.slow

SUITE = parse(
    {"name": "s", "shifts": ["contrast", "camera"], "frame": {"resize": 40}, "scorers": ["msp"]}, "test"
)


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a dial, a grid, probes, a scorer and two models."""
    out = tmp_path_factory.mktemp("import") / "run"
    sorites.run(
        SUITE,
        source=f"folder:{photos}",
        models=[tiny("one"), tiny("two")],
        out=out,
        limit=4,
        refine=0.05,
        labels=CLASSES,
    )
    return out


def exported(run: Path, path: Path) -> Path:
    """Write the table as CSV, lists as JSON."""
    frame = table.read(run).drop("run_id").collect()
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    spelled = [pl.Series(name, [json.dumps(value) for value in frame[name].to_list()]) for name in nested]
    frame.with_columns(spelled).write_csv(path)
    return path


@pytest.fixture(scope="module")
def imported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    return import_predictions(
        [exported(run, folder / "all.csv")], "csv", folder / "run", labels=CLASSES
    ).folder


def test_the_whole_table_comes_back(run: Path, imported: Path) -> None:
    order = ["model", "image_id", "output"]
    before, after = (table.read(folder).drop("run_id").sort(order).collect() for folder in (run, imported))
    assert after.drop("conf", "score").equals(before.drop("conf", "score"))
    assert after["score"].to_list() == pytest.approx(before["score"].to_list(), nan_ok=True)
    assert table.check(table.read(imported)) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("accuracy", {}),
        ("mean_accuracy", {}),
        ("accuracy_drop", {}),
        ("failure_severity", {}),
        ("survival", {}),
        ("failure_histogram", {"by": ("model",), "relative": True}),
        ("corruption_error", {"reference": "one"}),
        ("relative_corruption_error", {"reference": "one"}),
        ("calibration_error", {}),
        ("rank", {}),
        ("setting_table", {}),
        ("camera_control", {}),
        ("auroc", {"framework": "model-specific"}),
    ],
)
def test_metrics_are_those_of_the_run(name: str, options: dict[str, Any], run: Path, imported: Path) -> None:
    before, after = (METRICS.get(name)(table.read(folder), **options) for folder in (run, imported))
    assert before.height
    assert_frame_equal(after, before, rel_tol=1e-9)


def test_plain_columns_give_the_same_numbers(run: Path, tmp_path: Path) -> None:
    """Only sample, label, prediction, model, shift and severity, under other names, with WordNet
    ids, in two parquet files.
    """
    rows = (
        table.read(run)
        .filter(pl.col("output") == "label", ~pl.col("probe"), pl.col("shift") != "camera")
        .collect()
    )
    named = pl.col("label", "pred").replace_strict(dict(enumerate(CLASSES)), return_dtype=pl.String)
    plain = rows.select("model", named, image="sample_id", corruption="shift", scale="severity")
    plain = plain.rename({"label": "gt", "pred": "prediction", "model": "arch"})
    for name in ("one", "two"):
        plain.filter(pl.col("arch") == name).write_parquet(tmp_path / f"{name}.parquet")
    found = table.read(import_predictions([tmp_path], "csv", tmp_path / "run", labels=CLASSES).folder)
    for ask in (metrics.accuracy, metrics.accuracy_drop):
        assert_frame_equal(ask(found), ask(rows), rel_tol=1e-9)
    assert_frame_equal(metrics.failure_severity(found), metrics.failure_severity(rows))


def test_severity_0_of_each_shift_is_the_clean_image(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    head = "sample,label,pred,model,shift,severity\n"
    file.write_text(head + "a,1,1,m,fog,0\na,1,1,m,snow,0\na,1,2,m,fog,1\na,1,1,m,snow,1\n")
    rows = table.read(import_predictions([file], "csv", tmp_path / "run").folder).collect()
    assert sorted(rows.select("shift", "severity", "correct").rows()) == [
        ("clean", 0.0, True),
        ("fog", 1.0, False),
        ("snow", 1.0, True),
    ]
    file.write_text(head + "a,1,1,m,fog,0\na,1,2,m,snow,0\n")
    with pytest.raises(
        SoritesError,
        match="row 2, .* see row 1 of p.csv",
    ):
        import_predictions([file], "csv", tmp_path / "other")


def test_scores_become_rows_of_their_own_and_higher_may_mean_in_distribution(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "sample,label,pred,model,scorer,score\na,1,1,m,knn,2.5\na,1,1,m,msp,0.5\nb,,3,m,knn,-1\n"
    )
    (tmp_path / "map.toml").write_text('higher = "id"\n')
    found = import_predictions(
        [tmp_path / "p.csv"], "csv", tmp_path / "run", columns=tmp_path / "map.toml"
    ).folder
    rows = table.read(found).collect()
    assert sorted(rows.filter(pl.col("output") == "ood").select("sample_id", "scorer", "score").rows()) == [
        ("a", "knn", -2.5), ("a", "msp", -0.5), ("b", "knn", 1.0),
    ]  # fmt: skip
    labels = rows.filter(pl.col("output") == "label").sort("sample_id")
    assert labels.select("sample_id", "correct", "known", "score").rows() == [
        ("a", True, True, None),
        ("b", None, None, None),
    ]


def test_columns_and_constants_from_a_toml_file(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text('img,top,who,ISO,place,best\nx,281,tabby,250,snow,"281;282"\n')
    (tmp_path / "map.toml").write_text(
        '[columns]\nsample_id = "img"\npred = "top"\nlabel = "who"\ntop5 = "best"\n"params.iso" = "ISO"\n'
        '"attrs.location" = "place"\n'
        '[constants]\nmodel = "m"\nshift = "camera"\nparams.light = "on"\n'
    )
    found = import_predictions(
        [tmp_path / "p.csv"], "csv", tmp_path / "run", columns=tmp_path / "map.toml", source="mine"
    ).folder
    row = table.read(found).collect().to_dicts()[0]
    assert (row["sample_id"], row["pred"], row["label"], row["correct"], row["top5"]) == (
        "x",
        281,
        281,
        True,
        [281, 282],
    )
    assert (row["source"], row["shift"], row["severity"], row["family"]) == (
        "mine",
        "camera",
        None,
        row["family"],
    )
    assert json.loads(row["params"]) == {"iso": 250, "light": "on"}
    assert row["attrs"] == [{"key": "location", "value": "snow", "common": None}]


def test_the_same_again_is_nothing_to_do_and_other_content_is_refused(tmp_path: Path) -> None:
    file, out = tmp_path / "p.csv", tmp_path / "run"
    file.write_text("sample,label,pred,model\na,1,1,m\nb,1,2,m\n")
    assert import_predictions([file], "csv", out).worked
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*.*") if path.is_file()
    }
    assert not import_predictions([file], "csv", out).worked
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    with pytest.raises(SoritesError, match=r'constants\.source: null there, "x" here'):
        import_predictions([file], "csv", out, source="x")
    file.write_text("sample,label,pred,model\na,1,1,m\nb,1,1,m\n")
    with pytest.raises(SoritesError, match=r"\(p.csv has different content\)"):
        import_predictions([file], "csv", out)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


def test_a_lost_shard_is_made_again(tmp_path: Path) -> None:
    file, out = tmp_path / "p.csv", tmp_path / "run"
    file.write_text("sample,label,pred,model\na,1,1,m\n")
    import_predictions([file], "csv", out)
    shard = next((out / "predictions").iterdir())
    before = table.read(out).collect()
    shard.unlink()
    assert import_predictions([file], "csv", out).worked
    assert table.read(out).collect().equals(before)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "sample,label,pred\na,1,1\n",
            "model=NAME. Found sample_id from sample",
        ),
        (
            "sample,model,pred\na,m,1\n",
            "columns for label; .*columns=FILE",
        ),
        (
            "image,path,label,pred,model\na,b,1,1,m\n",
            'image and path .* sample_id = "image"',
        ),
        ("sample,gt,pred,model\na,1,1,m\nb,dragon,1,m\n", "row 2, column gt: .*'dragon'"),
        ("sample,label,pred,model\na,1,1000,m\n", "row 1, column pred: .*'1000'"),
        (
            "sample,label,pred,model\na,1,1001.0,m\n",
            "column pred: .* got 1001.0",
        ),
        (
            "sample,label,pred,model,conf\na,1,1,m,.5\nb,1,1,m,high\n",
            "row 2, column conf: .* 'high'",
        ),
        (
            "sample,label,pred,model,conf\na,1,1,m,nan\n",
            "row 1, column conf: .* 'nan'",
        ),
        (
            "sample,label,pred,model,conf\na,1,1,m,1.7\n",
            "from 0 to 1, got '1.7'",
        ),
        (
            "sample,label,pred,model,severity\na,1,1,m,-1\n",
            "column severity: .* got '-1'",
        ),
        (
            "sample,label,pred,model,severity\na,1,1,m,inf\n",
            "column severity: .* got 'inf'",
        ),
        (
            "sample,label,pred,model,level\na,1,1,m,1.5\n",
            "column level: .* got '1.5'",
        ),
        (
            "sample,label,pred,model,right\na,1,1,m,0\n",
            r"column right: .*pred is 1 .* \[1\]",
        ),
        (
            "sample,label,pred,model,right\na,1,1,m,maybe\n",
            "column right: .* got 'maybe'",
        ),
        (
            "sample,label,pred,model,params\na,1,1,m,[1]\n",
            "row 1, column params: .* list",
        ),
        (
            "sample,label,pred,model\na,1,1,m\n,1,1,m\n",
            "row 2, column sample:",
        ),
        (
            "sample,label,pred,model\na,1,,m\n",
            "row 1, column pred: empty",
        ),
        (
            "sample,label,pred,model\na,1,1,m\na,1,2,m\n",
            "row 2, .* appears twice",
        ),
        (
            "sample,label,pred,model\na,1,1,m\na,2,2,n\n",
            "row 2, column label: 2, .* 1$",
        ),
        ("sample,label,pred,model\n", "has no rows"),
        ("", "cannot read .*p.csv"),
    ],
)
def test_invalid_files_raise_and_nothing_is_written(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(SoritesError, match=match) as caught:
        import_predictions([tmp_path / "p.csv"], "csv", tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "[columns]\npredd = 'x'\n",
            "'predd'. Did you mean pred",
        ),
        ("[columns]\npred = 'x'\n", "no column of p.csv named 'x'"),
        ("[columns]\npred = 3\n", "pred = .* got 3"),
        ("higher = 'up'\n", "higher .* got 'up'"),
        ("column = 1\n", "no key of .*map.toml named 'column'. Did you mean columns"),
        ("pred", "map.toml: not valid TOML"),
        (
            "[columns]\nmodel = 'm'\n[constants]\nmodel = 'x'\n",
            r"model .*\[constants\]",
        ),
    ],
)
def test_invalid_column_maps_raise(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "p.csv").write_text("sample,label,pred,model\na,1,1,m\n")
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(SoritesError, match=match):
        import_predictions([tmp_path / "p.csv"], "csv", tmp_path / "run", columns=tmp_path / "map.toml")


def test_other_folders_and_layouts_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sample,label,pred,model\na,1,1,m\n")
    with pytest.raises(SoritesError, match=r"\(it was not imported\)"):
        import_predictions([tmp_path / "p.csv"], "csv", run)
    with pytest.raises(SoritesError, match="not a run folder"):
        import_predictions([tmp_path / "p.csv"], "csv", tmp_path)
    with pytest.raises(SoritesError, match="'cvs'. Did you mean csv"):
        import_predictions([tmp_path / "p.csv"], "cvs", tmp_path / "run")
    with pytest.raises(SoritesError, match="none.csv does not exist"):
        import_predictions([tmp_path / "none.csv"], "csv", tmp_path / "run")


def test_check_and_report_need_no_images(imported: Path, tmp_path: Path) -> None:
    said = check(str(imported)).splitlines()
    assert said[0] == f"run {read_record(imported).run_id}: {said[0].split()[2]} images, imported as csv"
    assert [line.split(":")[0] for line in said[1:]] == ["one", "two"]
    assert "not in its files" not in said[1]
    page = sorites.report(imported, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "half" in page
    sample = next(iter(plan_of(imported).groups["clean"]))
    said = "are not available: it was imported"
    with pytest.raises(SoritesError, match=said):
        sample.load()
    with pytest.raises(SoritesError, match=f"no image of .*{said}"):
        sorites.similarity(imported)
    with pytest.raises(SoritesError, match=f"can be recomputed: .*{said}"):
        run_sheet(imported)


def test_check_finds_lost_rows_and_says_which_images_a_model_lacks(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sample,label,pred,model\na,1,1,m\nb,1,1,m\na,1,1,n\n")
    (tmp_path / "q.csv").write_text("sample,label,pred,model\nc,1,1,n\n")
    out = import_predictions([tmp_path / "p.csv", tmp_path / "q.csv"], "csv", tmp_path / "run").folder
    assert check(str(out)).splitlines()[1:] == [
        "m: 2 rows, 0 errors, 1 images not in its files",
        "n: 2 rows, 0 errors, 1 images not in its files",
    ]
    sorted((out / "predictions").iterdir())[0].unlink()
    with pytest.raises(SoritesError, match="1 of 4 imported rows"):
        check(str(out))


def test_imports_share_samples_in_a_report_only_by_a_named_source(tmp_path: Path) -> None:
    for name in ("p", "q"):
        (tmp_path / f"{name}.csv").write_text(f"sample,label,pred,model\na,1,1,{name}\n")
    for source, shared in ((None, False), ("mine", True)):
        runs = [
            import_predictions([tmp_path / f"{n}.csv"], "csv", tmp_path / f"{source}-{n}", source=source)
            for n in "pq"
        ]
        named = {read_record(run.folder).suite.source for run in runs}
        assert (len(named) == 1) is shared


def test_a_reference_can_be_named_later(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sample,label,pred,model\na,1,1,m\n")
    out = import_predictions([tmp_path / "p.csv"], "csv", tmp_path / "run").folder
    import_predictions([tmp_path / "p.csv"], "csv", out, reference="m")
    assert read_record(out).suite.reference == "m"
    with pytest.raises(SoritesError, match="no model named 'x'"):
        import_predictions([tmp_path / "p.csv"], "csv", out, reference="x")
