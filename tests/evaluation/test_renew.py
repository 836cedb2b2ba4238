"""A run folder met again: images that changed are done again, moved ones are not, and other
models are refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.conftest import CLASSES, scene

import sorites
from sorites.core import ArrayRef, Model, Sample, Source, table
from sorites.core.errors import SoritesError
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.evaluation.facts.similarity import similarity
from sorites.evaluation.storage import explanations
from sorites.evaluation.storage.explanations import Change, Side
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import write_metadata
from sorites.suites.suite import parse


class Run:
    """Runs one suite on one folder of images again and again, and counts the images that the
    model sees.
    """

    def __init__(self, photos: Path, out: Path, model: Model) -> None:
        self.photos, self.out, self.model = photos, out, model
        self.seen, self.said = 0, list[str]()

    scale: Literal["unknown", "logits"] = "logits"

    def __call__(self, **more: Any) -> pl.DataFrame:
        self.seen, self.said = 0, []
        suite = {
            "name": "s",
            "shifts": [{"name": "jpeg", "levels": [1]}],
            "models": ["tiny"],
            "source": f"folder:{self.photos}",
        }
        plan = plans.make(parse({**suite, **more}, "test"), models={"tiny": self._counting()})
        runner.execute(runner.prepare(plan), self.out, say=self.said.append)
        return table.read(self.out).collect()

    def _counting(self) -> Model:
        held = self.model

        def forward(images: list[Any]) -> Any:
            self.seen += len(images)
            return held.forward(images)

        return Model(held.name, forward, labels=held.labels, version=held.version, scale=self.scale)


@pytest.fixture
def run(photos: Path, tmp_path: Path, tiny: Callable[..., Model]) -> Run:
    mine = tmp_path / "mine"
    shutil.copytree(photos, mine)
    return Run(mine, tmp_path / "run", tiny())


TRIED = 1
"""Every command shows the model one plain image before it begins."""


def repaint(path: Path, seed: int = 99) -> None:
    Pillow.fromarray(scene(seed)).save(path)


@pytest.mark.slow
def test_a_changed_image_is_done_again_and_its_rows_replaced(run: Run) -> None:
    before = run(similarity=["psnr"])
    repaint(run.photos / CLASSES[0] / "p00.png")
    after = run()
    assert run.seen == TRIED + 2 * 16, "both units of its slice, and nothing else"
    assert "1 of 20 images have changed" in run.said[0]
    key = ["sample_id", "shift"]
    both = before.join(after, on=key, suffix="_now")
    assert both.height == before.height == after.height == 40
    moved = both.filter((pl.col("conf") != pl.col("conf_now")) | (pl.col("degrees") != pl.col("degrees_now")))
    assert set(moved["sample_id"]) == {f"{CLASSES[0]}/p00.png"}
    assert (run.out / "replaced" / "predictions").is_dir()
    assert run().equals(after)
    assert run.seen == TRIED
    assert not run.said


def test_a_touched_or_copied_image_is_not_done_again(run: Run, tmp_path: Path) -> None:
    before = run()
    for path in run.photos.rglob("*.png"):
        os.utime(path, (1, 1))
    assert run().equals(before)
    assert run.seen == TRIED
    shutil.copytree(run.photos, tmp_path / "elsewhere", copy_function=shutil.copy)
    shutil.rmtree(run.photos)
    run.photos = tmp_path / "elsewhere"
    assert run().equals(before)
    assert run.seen == TRIED
    assert read_record(run.out).suite.source == f"folder:{tmp_path / 'elsewhere'}"
    assert run().equals(before)
    assert run.seen == TRIED


def test_a_model_of_unknown_scale_is_also_shown_one_batch_of_trial_images(run: Run) -> None:
    run.scale = "unknown"
    before = run()
    assert run.seen == TRIED + 3 + 2 * 20
    assert run().equals(before)
    assert run.seen == TRIED + 3
    run.scale = "logits"
    assert run().equals(before), "the trial found logits, so this is the same run"
    assert run.seen == TRIED


def test_other_images_elsewhere_are_another_run(run: Run, tmp_path: Path) -> None:
    run()
    shutil.copytree(run.photos, tmp_path / "elsewhere")
    repaint(tmp_path / "elsewhere" / CLASSES[0] / "p00.png")
    run.photos = tmp_path / "elsewhere"
    with pytest.raises(SoritesError, match="1 of its 20 images"):
        run()


def test_a_relative_folder_from_elsewhere_is_not_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, first in (("a", 0), ("b", 50)):
        for i in range(4):
            where = tmp_path / place / "pics" / CLASSES[i]
            where.mkdir(parents=True)
            Pillow.fromarray(scene(first + i)).save(where / "one.png")
    run.photos = Path("pics")
    monkeypatch.chdir(tmp_path / "a")
    before = run()
    monkeypatch.chdir(tmp_path / "b")
    after = run()
    assert "4 of 4 images have changed" in run.said[0]
    assert (before.sort("image_id")["conf"] != after.sort("image_id")["conf"]).any()
    assert after["image_id"].is_unique().all()


def test_the_manifest_knows_contents_and_the_id_does_not(run: Run) -> None:
    run()
    first = read_record(run.out).run_id
    held = pl.read_parquet(run.out / "manifest.parquet")
    assert held["bytes"].to_list() == [(run.photos / name).stat().st_size for name in held["sample_id"]]
    assert held["content"].n_unique() == 20
    repaint(run.photos / CLASSES[0] / "p00.png")
    run()
    assert read_record(run.out).run_id == first
    assert not pl.read_parquet(run.out / "manifest.parquet").equals(held)


def test_facts_of_changed_images_are_measured_again_or_set_aside(run: Run) -> None:
    run()
    facts = run().select("image_id").unique(maintain_order=True)
    table.write_facts(run.out, "distance", facts.with_columns(sem_level=pl.lit(1)))
    write_metadata(run.out, "distance", {"how": "so"})
    table.write_facts(run.out, "mine", facts.with_columns(valid=pl.lit(True)))
    repaint(run.photos / CLASSES[0] / "p00.png")
    after = run()
    assert "distance, mine" in run.said[0]
    assert after["sem_level"].null_count() == after.height
    assert set(after.filter(pl.col("valid").is_null())["sample_id"]) == {f"{CLASSES[0]}/p00.png"}
    assert (run.out / "replaced" / "facts" / "distance.json").exists()


def test_explanations_of_changed_images_are_gone(run: Run) -> None:
    images = run().filter(pl.col("shift") == "clean")
    changes = [explained(row) for row in images.iter_rows(named=True)]
    explanations.write_changes(run.out, changes)
    repaint(run.photos / CLASSES[0] / "p00.png")
    run()
    assert run.said[0].endswith("measured again: explanations")
    assert explanations.read_changes(run.out) == tuple(
        c for c in changes if c.sample_id != f"{CLASSES[0]}/p00.png"
    )


def explained(row: dict[str, Any]) -> Change:
    """Return a change whose two sides are the same image."""
    known: dict[str, Any] = {
        "shift": "clean",
        "severity": None,
        "params": "{}",
        "model": "tiny",
        "version": "1",
        "conf": None,
    }
    side = Side(
        file=row["image_id"], image_id=row["image_id"], pred=0, correct=True, target=0, layer="last", **known
    )
    return Change(between="models", sample_id=row["sample_id"], label=0, sides=(side, side))


@pytest.mark.slow
def test_kept_features_and_refined_points_follow_a_changed_image(run: Run) -> None:
    model = run._counting()
    suite = {
        "name": "s",
        "shifts": ["jpeg"],
        "models": ["tiny"],
        "source": f"folder:{run.photos}",
        "refine": 0.1,
    }
    plan = plans.make(parse(suite, "test"), models={"tiny": model})
    runner.execute(runner.prepare(plan), run.out, keep_features=True)
    probes = list((run.out / "predictions").glob("*-probe*.parquet"))
    times = {path.name: path.stat().st_mtime_ns for path in probes}
    repaint(run.photos / CLASSES[0] / "p00.png")
    again = plans.make(parse(suite, "test"), models={"tiny": model})
    runner.execute(runner.prepare(again), run.out, say=run.said.append)
    assert len(list((run.out / "features").glob("*"))) == 4
    first = [path for path in probes if path.stat().st_mtime_ns != times[path.name]]
    assert len(first) == 1


def test_a_changed_training_image_is_refused(run: Run, tmp_path: Path) -> None:
    training = tmp_path / "training"
    shutil.copytree(run.photos, training)
    more = {"scorers": ["knn(k=2)"], "fit": {"source": f"folder:{training}"}}
    run(**more)
    run(**more)
    repaint(training / CLASSES[1] / "p01.png")
    with pytest.raises(SoritesError, match="first the training image"):
        run(**more)


def test_a_image_that_changed_is_not_shown_or_measured_for_a_finished_run(run: Run) -> None:
    before = run()
    repaint(run.photos / CLASSES[0] / "p00.png")
    similarity(run.out, ["psnr"])
    after = table.read(run.out).collect().filter(pl.col("shift") == "jpeg", pl.col("degrees").is_null())
    assert after["sample_id"].to_list() == [f"{CLASSES[0]}/p00.png"]
    assert before["degrees"].null_count() == before.height


def test_arrays_of_samples_passed_from_python_are_their_content(
    tmp_path: Path, tiny: Callable[..., Model]
) -> None:
    def source(seed: int) -> Source:
        images = [scene(seed if i == 1 else i) for i in range(3)]
        return Source("mine", [Sample(str(i), ArrayRef(p), 0) for i, p in enumerate(images)])

    def conf(seed: int) -> dict[str, float]:
        options: dict[str, Any] = {
            "source": source(seed),
            "models": [tiny()],
            "shifts": ["jpeg"],
            "levels": [1],
        }
        found = sorites.run(parse({"name": "s"}, "t"), **options, out=tmp_path / "r", workers=1).collect()
        return dict(found.filter(pl.col("shift") == "clean").select("sample_id", "conf").iter_rows())

    before = conf(1)
    assert conf(1) == before
    with pytest.warns(UserWarning, match="1 of 3 images have changed"):
        after = conf(33)
    assert {key for key in before if before[key] != after[key]} == {"1"}


def test_damaged_facts_of_changed_images_are_named(run: Run) -> None:
    run()
    similarity(run.out, ["ssim"])
    (fact,) = (run.out / "facts").glob("*.parquet")
    fact.write_bytes(b"PAR1")
    image = next(path for path in sorted(run.photos.rglob("*")) if path.is_file())
    Pillow.fromarray(np.full((40, 40, 3), 7, np.uint8)).save(image)
    with pytest.raises(SoritesError, match=f"{fact.name} cannot be read: .*sorites.check"):
        run()
