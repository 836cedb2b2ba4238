"""The out-of-class filter of a run against the encoders asked directly; and its quality and
validity against counts by hand.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from polars.testing import assert_frame_equal
from tests.evaluation import fading

from sorites import core, metrics
from sorites.analysis.filter import encoders, filtering
from sorites.analysis.filter.filtering import filter_run
from sorites.analysis.filter.rules import VOTES
from sorites.core import ImageU8, Model, table, to_float, to_uint8
from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.rng import rng_for
from sorites.evaluation import worker
from sorites.evaluation.engines import Engine
from sorites.evaluation.facts.similarity import similarity
from sorites.evaluation.run import run
from sorites.evaluation.storage.shards import delete_facts
from sorites.suites.suite import Frame, parse

CLIP = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
SECOND = """
import numpy as np
from sorites.core import Outputs
def blocks(images):
    cells = [[c.mean(axis=(0, 1)) for r in np.array_split(p / 255, 3) for c in np.array_split(r, 3, axis=1)] for p in images]
    features = np.array(cells, np.float32).reshape(len(images), -1)
    return Outputs(features[:, :4], features)
def bare(images):
    return np.ones((len(images), 4), np.float32)
"""
Clip = tuple[str, Any, Any, Any]
"""The spec of a CLIP, and the library's own model, transform and tokenizer."""
SEVERITIES = (0.3, 0.9)
LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """Return a very small CLIP with random weights."""
    library = import_with_torchvision("open_clip", "encoder open_clip", "clip")
    import torch
    from safetensors.torch import save_file

    home = tmp_path_factory.mktemp("clip")
    (home / "filter-clip.json").write_text(json.dumps(CLIP), encoding="utf-8")
    library.add_model_config(home / "filter-clip.json")
    torch.manual_seed(3)
    weights = library.create_model("filter-clip").eval().state_dict()
    save_file({key: value.contiguous() for key, value in weights.items()}, home / "w.safetensors")
    model, _, prepare = library.create_model_and_transforms(
        "filter-clip", pretrained=str(home / "w.safetensors")
    )
    spec = f"open_clip:{home / 'filter-clip.json'}@{home / 'w.safetensors'}"
    return spec, model.eval(), prepare, library.get_tokenizer("filter-clip")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("second")
    (home / "second_encoder.py").write_text(SECOND, encoding="utf-8")
    sys.path.append(str(home))
    return "python:second_encoder:blocks"


@pytest.fixture
def folder(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    shifts = [{"name": name, "severities": SEVERITIES} for name in ("contrast", "gaussian_noise")]
    asked = {
        "name": "far",
        "source": f"folder:{photos}",
        "frame": {"resize": 48, "crop": 40},
        "limit": 3,
        "labels": LABELS,
    }
    run(parse({**asked, "shifts": shifts}, "far"), models=[tiny()], out=tmp_path / "run")
    return tmp_path / "run"


def images(photos: Path, sample_id: str, shift: str, severity: float) -> tuple[ImageU8, ImageU8]:
    """The clean and the shifted image of a sample, made here."""
    sample = next(s for s in core.source(f"folder:{photos}") if s.id == sample_id)
    clean = Frame(resize=48, crop=40)(sample.load())
    return clean, to_uint8(core.shift(shift)(to_float(clean), severity, rng_for(0, sample_id, shift)))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.slow
@pytest.mark.parametrize("softmax", [False, True])
def test_equations_4_and_5_for_every_shifted_image(
    folder: Path, photos: Path, clip: Clip, second: str, softmax: bool
) -> None:
    """Text: 100 cos(CLIP_img(I_k), CLIP_text(p)); features: cos(F_0, F_k) in CLIP and in a second
    encoder, by the libraries.
    """
    import torch

    spec, model, prepare, tokens = clip
    found = filter_run(folder, spec, second, phrases={"contrast": "in haze"}, softmax=softmax)
    rows = table.read(folder).filter(pl.col("shift") != "clean").collect()
    assert rows.height == found.rows.height == 3 * 2 * 2
    names = dict(zip(imagenet().ids, imagenet().names, strict=True))
    sys_module = sys.modules["second_encoder"]
    for row in rows.to_dicts():
        held = {entry["measure"]: entry["value"] for entry in row["degrees"]}
        clean, moved = (
            p.astype(np.uint8) for p in images(photos, row["sample_id"], row["shift"], row["severity"])
        )
        text = f"a photo of a {names[LABELS[row['label']]]}"
        phrase = {"contrast": "in haze", "gaussian_noise": "in gaussian noise"}[row["shift"]]
        with torch.inference_mode():
            start, seen = (
                model.encode_image(prepare(Pillow.fromarray(p))[None]).double().numpy()[0]
                for p in (clean, moved)
            )
            plain, shifted = model.encode_text(tokens([text, f"{text} {phrase}"])).double().numpy()
        own = [sys_module.blocks([p]).features[0].astype(np.float64) for p in (clean, moved)]
        own = [np.exp(f) / np.exp(f).sum() for f in own] if softmax else own
        expected = [
            100 * cosine(seen, plain),
            100 * cosine(seen, shifted),
            cosine(seen, start),
            cosine(own[0], own[1]),
        ]
        assert [held[vote] for vote in VOTES] == pytest.approx(expected, abs=2e-4)


def limits(path: Path, **values: float) -> Path:
    path.write_text("".join(f"{vote} = {values.get(vote, -1e9)}\n" for vote in VOTES), encoding="utf-8")
    return path


@pytest.mark.slow
def test_thresholds_are_moved_without_encoding_again(
    folder: Path, clip: Clip, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = filter_run(folder, clip[0], second, thresholds=limits(tmp_path / "all.toml"))
    assert first.rows["valid"].all()
    monkeypatch.setattr(encoders.Encoders, "images", lambda *args: pytest.fail("encoded again"))
    middle = float(first.rows["own_image"].median())  # type: ignore[arg-type]
    strict = limits(tmp_path / "some.toml", own_image=middle, joint_image=2.0, class_text=1e9)
    for rule, needed in (("paper", 3), ("code", 2)):
        for named in ((clip[0], second), (None, None)):
            found = filter_run(folder, *named, thresholds=strict, rule=rule)
            # shift_text passes always, two never
            passes = 1 + (first.rows["own_image"] > middle).cast(pl.Int32)
            expected = (passes >= needed).to_list()
            assert found.rows["valid"].to_list() == expected
            held = table.read(folder).filter(pl.col("shift") != "clean").select("image_id", "valid").collect()
            assert dict(held.iter_rows()) == dict(zip(found.rows["image_id"], expected, strict=True))
    again = filter_run(folder, thresholds=folder / "facts" / "out_of_class.json", rule="text")
    assert not again.rows["valid"].any()


@pytest.mark.slow
def test_other_encoders_encode_anew_and_a_stop_loses_little(
    folder: Path, clip: Clip, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = filter_run(folder, clip[0], second, workers=1).rows
    asked: list[int] = []
    unit = filtering.encode_unit

    def stopped(*args: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return unit(*args, **options)

    monkeypatch.setattr(filtering, "encode_unit", stopped)
    with pytest.raises(KeyboardInterrupt):
        filter_run(folder, clip[0], clip[0], workers=1)
    held = pl.read_parquet(folder / "facts" / "out_of_class.parquet")
    assert held.height == 6, "one shift of three samples"
    assert "valid" not in held.columns
    found = filter_run(folder, clip[0], clip[0], workers=1)
    assert len(asked) == 3
    np.testing.assert_allclose(found.rows["own_image"], found.rows["joint_image"])
    assert found.rows.select(*VOTES[:3]).equals(whole.select(*VOTES[:3]))


def annotated(path: Path, rows: pl.DataFrame, told: dict[str, list[str]]) -> Path:
    """Labels by sample, shift and scale, one line per judge; a clean image is judged too, which
    no filter asks about.
    """
    lines = ["sample,shift,scale,label", "x,clean,0,class"]
    for row, words in zip(rows.to_dicts(), told.values(), strict=True):
        lines += [f"{row['sample_id']},{row['shift']},{row['severity']},{word}" for word in words]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_calibration_and_table_2b_by_counting(folder: Path, clip: Clip, second: str, tmp_path: Path) -> None:
    rows = filter_run(folder, clip[0], second).rows
    words = [
        ["class", "not class"],
        ["class"],
        ["partial class properties"],
        ["partial", "in"],
        ["out", "partial"],
    ]
    told = {row: words[i % 5] for i, row in enumerate(rows["image_id"])}
    outside = {row: [True, False, None, False, True][i % 5] for i, row in enumerate(rows["image_id"])}
    file = annotated(tmp_path / "labels.csv", rows, told)
    found = filter_run(folder, annotations=file, thresholds="calibrated")
    assert dict(found.rows.select("image_id", "outside").iter_rows()) == outside

    kept: dict[str, list[bool]] = {}
    for vote in VOTES:
        lost = sorted(row[vote] for row in rows.to_dicts() if outside[row["image_id"]])
        limit = found.record.thresholds[vote]
        assert limit == next(value for value in lost if sum(x <= value for x in lost) >= 0.9 * len(lost))
        kept[vote] = (rows[vote] > limit).to_list()
    votes = np.sum([kept[vote] for vote in VOTES], axis=0)
    kept |= {"text": kept["class_text"], "paper": list(votes >= 3), "code": list(votes >= 2)}
    assert found.quality is not None
    for row in found.quality.to_dicts():
        pairs = [
            (lost, not stay)
            for lost, stay in zip(outside.values(), kept[row["filter"]], strict=True)
            if lost is not None
        ]
        positive, negative = ([aside for lost, aside in pairs if lost is kind] for kind in (True, False))
        right = sum(positive) + len(negative) - sum(negative)
        expected = (np.mean(positive), np.mean(negative), right / len(pairs), len(pairs))
        assert (row["tpr"], row["fpr"], row["accuracy"], row["n"]) == pytest.approx(expected)
    assert found.rows["valid"].to_list() == kept["paper"]
    later = filter_run(folder, thresholds="calibrated", rule="code")
    assert later.quality is not None
    assert later.quality.equals(found.quality), "the annotations stay with the run"
    assert later.rows["valid"].to_list() == kept["code"]


def test_a_trajectory_may_stay_only_whole(folder: Path, clip: Clip, second: str, tmp_path: Path) -> None:
    rows = filter_run(folder, clip[0], second).rows
    limit = limits(tmp_path / "t.toml", class_text=float(rows["class_text"].median()))  # type: ignore[arg-type]
    single = filter_run(folder, thresholds=limit, rule="text").rows
    found = filter_run(folder, thresholds=limit, rule="text", whole=True).rows
    expected = single.with_columns(pl.col("valid").all().over("sample_id", "shift"))
    assert found["valid"].to_list() == expected["valid"].to_list()
    assert found["valid"].sum() < single["valid"].sum()


@pytest.mark.slow
def test_the_lpips_cut_and_the_filter_together(folder: Path, clip: Clip, second: str, tmp_path: Path) -> None:
    """An image is valid only if neither says no, whichever file comes last by its name."""
    rows = filter_run(folder, clip[0], second).rows
    limit = float(rows["joint_image"].median())  # type: ignore[arg-type]
    file = limits(tmp_path / "t.toml", joint_image=limit, class_text=1e9)
    filtered = dict(filter_run(folder, thresholds=file).rows.select("image_id", "valid").iter_rows())
    assert 0 < sum(filtered.values()) < len(filtered)
    similarity(folder, ("lpips",))
    degrees = (
        table.read(folder)
        .filter(pl.col("shift") != "clean")
        .select("image_id", "shift", "severity", "degrees")
        .collect()
    )
    lpips = degrees.explode("degrees").unnest("degrees").filter(pl.col("measure") == "lpips")
    means = lpips.with_columns(far=pl.col("value").mean().over("shift", "severity"))
    cut = float(means["far"].unique().median())  # type: ignore[arg-type]
    similarity(folder, ("lpips",), lpips_below=cut)
    near = dict(means.select("image_id", pl.col("far") < cut).iter_rows())
    held = dict(
        table.read(folder)
        .filter(pl.col("shift") != "clean")
        .select("image_id", "valid")
        .collect()
        .iter_rows()
    )
    assert held == {key: filtered[key] and near[key] for key in filtered}
    assert sum(held.values()) < min(sum(filtered.values()), sum(near.values()))
    assert metrics.accuracy(table.read(folder), by="shift")["n"].sum() == 3 + sum(held.values())


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_said_before_any_encoding(
    folder: Path, clip: Clip, second: str, tmp_path: Path
) -> None:
    for words, said in (
        ({}, "has no similarities yet"),
        ({"encoder": clip[0]}, "encoder=NAME and second=NAME"),
        ({"rule": "papr"}, "no rule named 'papr'. Did you mean paper"),
        ({"thresholds": "publishd"}, "published or calibrated"),
        ({"thresholds": "calibrated"}, "needs images labelled out of class"),
        ({"encoder": clip[0], "second": "python:second_encoder:bare"}, "has no features"),
        (
            {"encoder": clip[0], "second": "nothing"},
            "got 'nothing'",
        ),
        (
            {"encoder": clip[0], "second": second, "phrases": {"contrst": "x"}},
            "no shift named 'contrst'. Did you mean contrast",
        ),
    ):
        with pytest.raises(SoritesError, match=said):
            filter_run(folder, **words)  # type: ignore[arg-type]
    (tmp_path / "half.toml").write_text("class_text = 3\n")
    with pytest.raises(SoritesError, match="no number for shift_text"):
        filter_run(folder, thresholds=tmp_path / "half.toml")
    assert not (folder / "facts").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image,label\na,in\n", "got image, label"),
        ("image_id,label\na,inside\n", "row 1: .*label, got 'inside'"),
        ("image_id,outside\na,true\nb,maybe\n", "row 2: .*outside, got 'maybe'"),
        ("sample,shift,scale,label\na,x,far,in\n", "row 1: .*scale, got 'far'"),
        ("image_id,label\na,in\n", "none of its 1 rows"),
    ],
)
def test_annotations_that_do_not_fit_are_named(folder: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SoritesError, match=said):
        filter_run(folder, annotations=tmp_path / "a.csv")


def copies(units: Sequence[Any], work: Callable[[Any], Any], workers: int) -> Iterator[tuple[Any, Any]]:
    """An engine that copies its work once and each task, as engines of other processes do."""
    sent = pickle.loads(pickle.dumps(work))
    for unit in units:
        copied = pickle.loads(pickle.dumps(unit))
        yield copied, sent(copied)


def test_workers_do_not_open_the_run_again(
    photos: Path, clip: Clip, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task brings the samples of its slice; encoders are loaded once for all slices."""
    asked = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 48}, "labels": LABELS}
    shifts = [{"name": name, "severities": [0.5]} for name in ("contrast", "brightness")]
    run(parse({**asked, "models": [second], "shifts": shifts}, "far"), out=tmp_path / "run")
    here = filter_run(tmp_path / "run", clip[0], second).rows
    delete_facts(tmp_path / "run", "out_of_class")
    loaded = encoders.LoadedPair.__init__
    count: list[encoders.LoadedPair] = []
    monkeypatch.setattr(
        encoders.LoadedPair, "__init__", lambda self, pair: (count.append(self), loaded(self, pair))[1]
    )
    monkeypatch.setattr(worker, "_open", lambda folder: pytest.fail("opened again"))
    engine = Engine(copies, one_process=False, name="copies")
    there = filter_run(tmp_path / "run", clip[0], second, engine=engine, workers=1).rows
    assert there.height == 40
    assert_frame_equal(there, here)
    assert len(count) == 2, "one that says its version, and one for all tasks"


@pytest.mark.slow
def test_worker_processes_give_the_same(photos: Path, clip: Clip, second: str, tmp_path: Path) -> None:
    asked = {
        "name": "far",
        "source": f"folder:{photos}",
        "frame": {"resize": 48},
        "limit": 2,
        "labels": LABELS,
    }
    suite = parse({**asked, "models": [second], "shifts": [{"name": "contrast", "severities": [0.5]}]}, "far")
    run(suite, out=tmp_path / "run")
    here = filter_run(tmp_path / "run", clip[0], second).rows
    delete_facts(tmp_path / "run", "out_of_class")
    there = filter_run(tmp_path / "run", clip[0], second, engine="processes", workers=1).rows
    # torch rounds otherwise where it has another number of threads
    assert_frame_equal(there, here, abs_tol=1e-5)


@pytest.mark.usefixtures("fading_source")
def test_images_of_dials_of_samples_own_are_filtered_as_others(
    clip: Clip, second: str, tmp_path: Path
) -> None:
    run(fading.suite(source="fading:6"), models=[fading.model()], out=tmp_path / "run")
    found = filter_run(
        tmp_path / "run", clip[0], second, phrases={"fade": "in the dark", "drift": "at the edge"}
    )
    assert found.counts().select("shift", "severity", "images", "judged").rows() == [
        ("drift", 1.0, 3, 3), ("fade", 0.5, 6, 6), ("fade", 1.0, 6, 6), ("fade", 1.5, 6, 6), ("fade", 2.0, 6, 6),
    ]  # fmt: skip
    assert table.read(tmp_path / "run").filter(pl.col("shift") == "fade").collect()["valid"].null_count() == 0
