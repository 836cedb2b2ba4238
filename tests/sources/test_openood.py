"""OpenOOD's benchmarks: lists, labels, filtered images, and results like those of its evaluator."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn import metrics as sklearn
from tools.net.images import OPENOOD
from tools.net.images import openood as write_tree
from typer.testing import CliRunner

import sorites
from sorites import core
from sorites.cli.app import app
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import labels
from sorites.sources.papers.openood import BENCHMARKS
from sorites.suites.suite import load

MODEL = """
import numpy as np
def logits(images):
    rows = np.stack([np.resize(p.mean(axis=(0, 1)) / 25, 10) * np.cos(np.arange(10)) for p in images])
    return rows.astype(np.float32)
"""
CLASSES = load("openood_cifar10").labels


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("openood")
    write_tree(str(folder))
    return folder


def read(spec: str) -> list[core.Sample]:
    return list(core.source(spec, labels(CLASSES)))


def dataset(sample: core.Sample) -> str:
    return next(attr.value for attr in sample.attrs if attr.key == "set")


def test_every_list_is_read_with_its_labels_and_groups(root: Path) -> None:
    samples = read(f"openood:{root}")
    assert len(samples) == sum(len(rows) for name, rows in OPENOOD.items() if "/test_" in name)
    assert not any("filtered" in sample.id for sample in samples)
    clean = [s for s in samples if dataset(s) == "cifar10"]
    assert [s.label for s in clean] == [i % 10 for i in range(20)]
    assert {s.shift for s in clean} == {core.CLEAN}
    shifted = [s for s in samples if dataset(s) == "cifar10c"]
    assert {s.shift for s in shifted} == {"cifar10c"}
    assert all(s.label is not None for s in shifted)
    groups = {dataset(s): s.attrs[0].value for s in samples if s.label is None}
    assert groups == {
        **dict.fromkeys(("cifar100", "tin"), "near"),
        **dict.fromkeys(("mnist", "svhn", "texture", "places365"), "far"),
    }


@pytest.mark.parametrize(("word", "count"), [("train", 20), ("val", 10), ("val_ood", 5)])
def test_other_splits(root: Path, word: str, count: int) -> None:
    samples = read(f"openood:{root},cifar10,{word}")
    assert len(samples) == count
    assert all((s.label is None) == (word == "val_ood") for s in samples)


def test_missing_lists_and_images_are_named_or_skipped(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "part")
    (tmp_path / "part/benchmark_imglist/cifar10/test_svhn.txt").unlink()
    (tmp_path / "part/images_classic/tin/test/3.png").unlink()
    with pytest.raises(SoritesError, match="2 lists or images of cifar10 are missing"):
        read(f"openood:{tmp_path / 'part'}")
    with pytest.warns(UserWarning, match="2 lists"):
        found = read(f"openood:{tmp_path / 'part'},present")
    assert len(found) == len(read(f"openood:{root}")) - len(OPENOOD["cifar10/test_svhn.txt"]) - 1


def test_mistakes_are_reported(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="benchmark_imglist"):
        read(f"openood:{tmp_path}")
    with pytest.raises(UnknownName):
        read(f"openood:{root},cifar11")
    with pytest.raises(SoritesError, match="1000 classes"):
        read(f"openood:{root},imagenet")
    shutil.copytree(root / "benchmark_imglist", tmp_path / "benchmark_imglist")
    for text in ("cifar10/0.png", "cifar10/0.png 10", "cifar10/0.png -1", "../0.png 1"):
        (tmp_path / "benchmark_imglist/cifar10/test_cifar10.txt").write_text(text, encoding="utf-8")
        with pytest.raises(SoritesError, match="line 1"):
            read(f"openood:{tmp_path},present")


def test_labels_that_contradict_the_class_folder_are_refused(tmp_path: Path) -> None:
    suite = load("openood_imagenet200")
    lists = tmp_path / "benchmark_imglist" / "imagenet200"
    lists.mkdir(parents=True)
    for label, ok in ((0, True), (1, False)):
        (lists / "train_imagenet200.txt").write_text(f"imagenet_1k/train/{suite.labels[0]}/a.JPEG {label}")
        spec = f"openood:{tmp_path},train,present"
        if ok:
            with pytest.warns(UserWarning, match="missing"):
                assert list(core.source(spec, labels(suite.labels))) == []
        else:
            with pytest.raises(SoritesError, match="another order"):
                core.source(spec, labels(suite.labels))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet200", "imagenet1k"])
def test_the_suites_have_as_many_classes_as_their_benchmark(name: str) -> None:
    suite = load(f"openood_{name}")
    count = 1000 if name == "imagenet1k" else len(suite.labels)
    assert count == BENCHMARKS[name.removesuffix("1k")].classes
    assert suite.source == "openood:data"


def expected(table: pl.DataFrame, scorer: str, full: bool) -> dict[str, list[float]]:
    """OpenOOD's evaluator, written with scikit-learn: per dataset and the means of near and far, in percent."""
    table = table.with_columns(source=pl.col("sample_id").str.split("/").list.get(1))
    rows = table.filter(pl.col("output") == "ood", pl.col("scorer") == scorer)
    verdicts = table.filter(pl.col("output") == "label")
    in_distribution = ["cifar10", "cifar10c"] if full else ["cifar10"]
    known = rows.filter(pl.col("source").is_in(in_distribution))["score"].to_numpy()
    right = verdicts.filter(pl.col("source").is_in(in_distribution))["correct"].mean()
    found: dict[str, list[float]] = {}
    for group, names in (
        ("nearood", ("cifar100", "tin")),
        ("farood", ("mnist", "places365", "svhn", "texture")),
    ):
        for name in names:
            ood = rows.filter(pl.col("source") == name)["score"].to_numpy()
            truth, scores = np.repeat([0, 1], [len(known), len(ood)]), np.concatenate([known, ood])
            fpr, tpr, _ = sklearn.roc_curve(truth, scores)
            inward = sklearn.precision_recall_curve(1 - truth, -scores)
            outward = sklearn.precision_recall_curve(truth, scores)
            found[name] = [
                100 * float(value)
                for value in (
                    fpr[np.argmax(tpr >= 0.95)],
                    sklearn.auc(fpr, tpr),
                    sklearn.auc(inward[1], inward[0]),
                    sklearn.auc(outward[1], outward[0]),
                    right,
                )
            ]
        found[group] = np.mean([found[name] for name in names], axis=0).tolist()
    return found


@pytest.mark.slow
def test_one_command_gives_the_tables_of_openood(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small_model.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner: Any = CliRunner()
    done = runner.invoke(
        app,
        ["run", "openood_cifar10", "--source", f"openood:{root}", "--model", "m=python:small_model:logits",
         "--only-scorer", "msp", "--only-scorer", "energy", "--out", "run"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    done = runner.invoke(app, ["export", "run", "--as", "openood", "--out", "tables"])
    assert done.exit_code == 0, done.output
    table = sorites.read("run").collect()
    for task in ("ood", "fsood"):
        for scorer in ("msp", "energy"):
            with (tmp_path / "tables" / "m" / task / f"{scorer}.csv").open(
                encoding="utf-8", newline=""
            ) as file:
                rows = list(csv.reader(file))
            assert rows[0] == ["", "FPR@95", "AUROC", "AUPR_IN", "AUPR_OUT", "ACC"]
            found = {name: list(map(float, values)) for name, *values in rows[1:]}
            theirs = expected(table, scorer, task == "fsood")
            assert list(found) == list(theirs)
            for name, values in theirs.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=f"{task} {scorer} {name}")
    averages = sorites.near_far(table, framework="full_spectrum").filter(pl.col("metric") == "auroc")
    theirs = expected(table, "msp", True)
    for group in ("near", "far"):
        value = averages.filter(pl.col("scorer") == "msp", pl.col("group") == group)["value"].item()
        assert 100 * value == pytest.approx(theirs[f"{group}ood"][1], rel=1e-9)
