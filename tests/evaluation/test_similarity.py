"""Similarity of a run's images: facts joined into its table, and settings set aside by their mean LPIPS."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.measures.images import blurred

from sorites import core, metrics
from sorites.core import MEASURES, Generated, ImageU8, Model, Sample, Setting, Source
from sorites.core.errors import SoritesError
from sorites.core.table import read, write_facts
from sorites.evaluation.facts.similarity import similarity
from sorites.evaluation.run import run
from sorites.measures.images import exposure_error
from sorites.suites.suite import Frame, parse


@pytest.fixture(scope="module")
def folder(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    suite = parse(
        {
            "name": "small", "source": f"folder:{photos}", "labels": ["n01440764", "n01443537", "n01484850", "n01491361"],
            "frame": {"resize": 64}, "limit": 2,
            "shifts": [
                {"name": "camera", "options": {"grid": "test"}, "settings": [{"light": "on", "aperture": 9.0}]},
                {"name": "aperture", "severities": [8]},
            ],
        },
        "small",
    )  # fmt: skip
    run(suite, models=[tiny()], out=out)
    return out


def replaced(
    monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[[ImageU8, ImageU8], float]
) -> None:
    monkeypatch.setitem(MEASURES._objects, name, replace(core.measure(name), function=function))


def test_every_shifted_image_gets_its_values(folder: Path, photos: Path) -> None:
    similarity(folder, ("exposure_error", "clipped_share"))
    rows = read(folder).filter(pl.col("shift") != "clean").collect()
    assert rows["degrees"].list.len().unique().to_list() == [2]
    assert (
        read(folder).filter(pl.col("shift") == "clean").select("degrees").collect()["degrees"].null_count()
        == 2
    )
    row = rows.filter(pl.col("shift") == "aperture", pl.col("severity") == 8).row(0, named=True)
    sample = next(s for s in core.source(f"folder:{photos}") if s.id == row["sample_id"])
    clean = Frame(resize=64)(sample.load())
    assert abs(next(d["value"] for d in row["degrees"] if d["measure"] == "exposure_error")) < 0.2
    assert exposure_error(clean, clean) == 0


def test_settings_too_far_by_lpips_are_set_aside_and_still_there(folder: Path) -> None:
    before = metrics.accuracy(read(folder), by=("shift", "params"))
    similarity(folder, ("lpips",), lpips_below=0.6)
    rows = read(folder).filter(pl.col("shift") == "camera").collect()
    entries = rows.explode("degrees").unnest("degrees").filter(pl.col("measure") == "lpips")
    means = entries.group_by("params").agg(pl.col("value").mean(), pl.col("valid").all())
    assert means.height == 9
    assert ((means["value"] < 0.6) == means["valid"]).all()
    assert 0 < means["valid"].sum() < 9
    assert metrics.accuracy(read(folder), by=("shift", "params")).height < before.height


def test_an_unknown_measure_is_named(folder: Path) -> None:
    with pytest.raises(SoritesError, match="Did you mean lpips"):
        similarity(folder, ("lpip",))


def test_a_suite_may_ask_for_the_filter(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    asked = {
        "name": "far",
        "source": f"folder:{photos}",
        "frame": {"resize": 64},
        "limit": 2,
        "lpips_below": 0.3,
    }
    suite = parse({**asked, "shifts": [{"name": "gaussian_noise", "severities": [0.01, 1.5]}]}, "far")
    rows = run(suite, models=[tiny()], out=tmp_path / "run").filter(pl.col("shift") != "clean").collect()
    assert rows.group_by("severity").agg(pl.col("valid").all()).sort("severity")["valid"].to_list() == [
        True,
        False,
    ]
    when = (tmp_path / "run" / "facts" / "similarity.parquet").stat().st_mtime_ns
    run(suite, models=[tiny()], out=tmp_path / "run")
    assert (tmp_path / "run" / "facts" / "similarity.parquet").stat().st_mtime_ns == when


def test_the_lpips_cut_of_imagenet_es_is_on_whole_images_resized_linearly(
    tiny: Callable[..., Model], tmp_path: Path
) -> None:
    """``lpips/img_compare.py`` compares the files themselves: no frame, the captured one resized by
    OpenCV's default.
    """
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    clean = {
        name: rng.integers(0, 256, size, np.uint8)
        for name, size in {"a": (50, 70, 3), "b": (60, 44, 3)}.items()
    }
    shots = {
        (name, number): blurred(rng.integers(0, 256, (2 * h + 21, 2 * w + 29, 3), np.uint8), 0.5 * number)
        for name, (h, w, _) in {name: image.shape for name, image in clean.items()}.items()
        for number in (1, 2)
    }
    samples = [Sample(name, Generated(lambda name=name: clean[name]), label=0) for name in clean]
    samples += [
        Sample(
            key[0],
            Generated(lambda key=key: shots[key]),
            label=0,
            shift="camera",
            setting=Setting(params={"number": key[1]}),
        )
        for key in shots
    ]
    wanted = {
        key: core.measure("lpips")(clean[key[0]], cv2.resize(shot, clean[key[0]].shape[1::-1]))
        for key, shot in shots.items()
    }
    means = [np.mean([wanted[name, number] for name in clean]) for number in (1, 2)]
    suite = {"name": "es", "frame": {"resize": 40, "crop": 36}, "similarity": ["lpips", "lpips_linear"]}
    cut = {"lpips_below": float(np.mean(means)), "lpips_measure": "lpips_linear"}
    out = tmp_path / "run"
    rows = run(
        parse({**suite, **cut}, "es"), source=Source("es", samples), models=[tiny()], out=out
    ).collect()
    rows = rows.filter(pl.col("shift") == "camera")
    for row in rows.iter_rows(named=True):
        values = {one["measure"]: one["value"] for one in row["degrees"]}
        number = json.loads(row["params"])["number"]
        assert values["lpips_linear"] == pytest.approx(wanted[row["sample_id"], number], rel=0.01)
        assert abs(values["lpips"] - values["lpips_linear"]) > 0.02
        assert row["valid"] == (means[number - 1] < cut["lpips_below"])


def test_a_cut_goes_by_lpips_alone(folder: Path) -> None:
    with pytest.raises(SoritesError, match="lpips_linear, got 'ssim'"):
        similarity(folder, (), lpips_below=0.8, lpips_measure="ssim")
    with pytest.raises(SoritesError, match="needs lpips_below"):
        similarity(folder, ("psnr",), lpips_measure="lpips_linear")


def test_a_suite_may_ask_for_measures_and_only_what_is_missing_is_measured(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 64}, "limit": 3}
    dial = {"name": "gaussian_noise", "severities": [0.01, 0.5]}
    suite = parse({**asked, "similarity": ["ssim"], "shifts": [dial]}, "far")
    out = tmp_path / "run"
    rows = run(suite, models=[tiny()], out=out).filter(pl.col("shift") != "clean").collect()
    entries = rows.explode("degrees").unnest("degrees")
    assert entries["measure"].unique().to_list() == ["ssim"]
    likeness = entries.group_by("severity").agg(pl.col("value").mean()).sort("severity")["value"]
    assert likeness[0] > 0.9 > likeness[1]

    path = out / "facts" / "similarity.parquet"
    held, when = pl.read_parquet(path), path.stat().st_mtime_ns
    run(suite, models=[tiny()], out=out)
    assert path.stat().st_mtime_ns == when
    write_facts(out, "similarity", held.head(4))
    calls = []
    whole = core.measure("ssim")
    replaced(monkeypatch, "ssim", lambda a, b: calls.append(1) or whole(a, b))
    steps: list[int] = []
    run(suite, models=[tiny()], out=out, bar=lambda what, n: steps.append(n) or steps.append)  # type: ignore[func-returns-value]
    assert len(calls) == 2
    assert steps[0] == 2
    assert pl.read_parquet(path).equals(held)


def test_measures_add_up_and_a_filter_stays(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    dial = {"name": "gaussian_noise", "severities": [0.01, 1.5]}
    asked = {
        "name": "far",
        "source": f"folder:{photos}",
        "frame": {"resize": 64},
        "limit": 2,
        "lpips_below": 0.3,
    }
    run(parse({**asked, "shifts": [dial]}, "far"), models=[tiny()], out=tmp_path / "run")
    similarity(tmp_path / "run", ("ssim", "psnr"))
    rows = read(tmp_path / "run").filter(pl.col("shift") != "clean").collect()
    assert {one["measure"] for one in rows["degrees"][0]} == {"lpips", "ssim", "psnr"}
    assert rows.group_by("severity").agg(pl.col("valid").all()).sort("severity")["valid"].to_list() == [
        True,
        False,
    ]


def test_what_was_measured_before_a_stop_is_kept(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 64}, "limit": 4}
    run(
        parse({**asked, "shifts": [{"name": "contrast", "severities": [0.5]}]}, "far"),
        models=[tiny()],
        out=tmp_path / "run",
    )
    whole, calls = core.measure("ssim"), []

    def stopped(reference: ImageU8, moved: ImageU8) -> float:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(reference, moved)

    replaced(monkeypatch, "ssim", stopped)
    with pytest.raises(KeyboardInterrupt):
        similarity(tmp_path / "run", ("ssim",), workers=1)
    assert len(pl.read_parquet(tmp_path / "run" / "facts" / "similarity.parquet")) == 2
    calls[:] = [1] * 3
    similarity(tmp_path / "run", ("ssim",), workers=1)
    assert len(calls) == 3 + 2, "only what was missing"
    assert len(pl.read_parquet(tmp_path / "run" / "facts" / "similarity.parquet")) == 4


def test_a_suite_with_an_unknown_measure_is_refused_by_name() -> None:
    with pytest.raises(SoritesError, match="named 'sim'. Did you mean ssim"):
        parse({"name": "s", "similarity": ["sim"]}, "s")


def test_a_image_too_small_for_a_measure_has_none_and_is_not_measured_again(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = parse(
        {
            "name": "tiny", "source": f"folder:{photos}", "labels": ["n01440764", "n01443537", "n01484850", "n01491361"],
            "frame": {"resize": 8}, "limit": 1, "shifts": [{"name": "brightness", "levels": [1]}],
        },
        "test",
    )  # fmt: skip
    run(suite, models=[tiny()], out=tmp_path / "run")
    facts = (
        pl.read_parquet(similarity(tmp_path / "run", ["ssim", "psnr"])).explode("degrees").unnest("degrees")
    )
    values = dict(zip(facts["measure"], facts["value"], strict=True))
    assert values["ssim"] is None
    assert values["psnr"] > 0
    calls = []
    for name in ("ssim", "psnr", "exposure_error"):
        replaced(monkeypatch, name, lambda a, b, name=name: calls.append(name) or 0.0)
    similarity(tmp_path / "run", ["ssim", "psnr"])
    similarity(tmp_path / "run", ["ssim"])
    assert calls == []
    facts = (
        pl.read_parquet(similarity(tmp_path / "run", ["psnr", "exposure_error", "ssim"]))
        .explode("degrees")
        .unnest("degrees")
    )
    assert calls == ["exposure_error"]
    assert dict(zip(facts["measure"], facts["value"], strict=True)) == {**values, "exposure_error": 0.0}


def test_a_measure_without_a_number_has_none(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    """The haze of a single grey is not a number; of a scene it is one."""
    grey = Sample("grey", Generated(lambda: np.full((64, 64, 3), 90, np.uint8)), label=0)
    photo = next(iter(core.source(f"folder:{photos}")))
    suite = parse(
        {"name": "h", "similarity": ["haze_depth"], "shifts": [{"name": "haze", "levels": [3]}]}, "h"
    )
    rows = run(
        suite, source=Source("two", [grey, replace(photo, label=1)]), models=[tiny()], out=tmp_path / "run"
    ).collect()
    entries = rows.explode("degrees").unnest("degrees").filter(pl.col("measure") == "haze_depth")
    values = dict(entries.select("sample_id", "value").iter_rows())
    assert values["grey"] is None
    assert values[photo.id] > 0


def test_a_measure_that_a_suite_names_twice_is_taken_once() -> None:
    assert parse({"name": "s", "similarity": ["ssim", "psnr", "ssim"]}, "s").similarity == ("ssim", "psnr")
