"""A pipeline gives the rows of the plain path, however its images are made and batched."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import CLEAN, Generated, ImageU8, Model, Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.evaluation import plan as plans
from sorites.evaluation.images import shots
from sorites.evaluation.pipeline import producers as producing
from sorites.evaluation.pipeline import slots
from sorites.evaluation.pipeline.consume import Counts
from sorites.evaluation.pipeline.jobs import Job, Made, Workshop, cut, distinct_inputs
from sorites.evaluation.pipeline.producers import NoProducers, Producers
from sorites.evaluation.pipeline.run import Pipeline
from sorites.evaluation.pipeline.stages import Grid
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import Predictions, predict
from sorites.evaluation.samples import CleanImages
from sorites.evaluation.worker import Task
from sorites.models.preprocess import Input
from sorites.suites.suite import parse

SUITE = {"name": "small", "frame": {"resize": 64, "crop": 56}, "scorers": ["msp", "energy"],
         "shifts": [{"name": "contrast", "levels": [1, 3, 5]}, {"name": "gaussian_noise", "levels": [2]}]}  # fmt: skip

Tiny = Callable[..., Model]


@pytest.fixture
def plan(photos: Path, tiny: Tiny) -> Plan:
    (photos / "n01440764" / "broken.png").write_bytes(b"no image")
    suite = parse({**SUITE, "source": f"folder:{photos}", "models": ["a", "b", "c"]}, "test")
    small = Input(size=(40, 40))
    models = {name: tiny(name) for name in "abc"}
    models["c"] = replace(models["c"], prepare=small.prepare)
    yield plans.make(suite, models=models)  # type: ignore[misc]
    (photos / "n01440764" / "broken.png").unlink()


def tasks_of(plan: Plan) -> list[Task]:
    """All tasks; of the second one, a model has finished already."""
    names = tuple(plan.models)
    return [Task(unit, names[1:] if i == 1 else names) for i, unit in enumerate(plan.units())]


def jobs_of(plan: Plan) -> list[Job]:
    """The jobs of all tasks, with every input."""
    inputs = tuple(range(len(distinct_inputs(plan)[0])))
    grid = Grid(plan, lambda task, predicted: None)
    return list(cut((t.unit.start, grid.part(i, t, inputs)) for i, t in enumerate(tasks_of(plan))))


def plain(plan: Plan) -> dict[Task, dict[str, pl.DataFrame]]:
    return {
        task: {
            name: p.rows for name, p in predict(plan, shots(plan, task.unit), 8, models=task.models).items()
        }
        for task in tasks_of(plan)
    }


def piped(plan: Plan, pipeline: Pipeline) -> dict[Task, dict[str, pl.DataFrame]]:
    written: dict[Task, dict[str, pl.DataFrame]] = {}

    def write(task: Task, predicted: Mapping[str, Predictions]) -> None:
        written[task] = {name: each.rows for name, each in predicted.items()}

    assert sorted(map(repr, pipeline.run(plan, tasks_of(plan), write))) == sorted(map(repr, tasks_of(plan)))
    return written


def same(first: dict[Task, dict[str, pl.DataFrame]], second: dict[Task, dict[str, pl.DataFrame]]) -> bool:
    return first.keys() == second.keys() and all(
        first[task].keys() == second[task].keys()
        and all(first[task][name].equals(second[task][name]) for name in first[task])
        for task in first
    )


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "batch"), [(1, 8), (3, 5), (2, 64)])
def test_rows_do_not_depend_on_threads_and_batch(plan: Plan, threads: int, batch: int) -> None:
    assert same(piped(plan, Pipeline(0, batch, threads=threads)), plain(plan))


@pytest.mark.slow
def test_rows_do_not_depend_on_processes_and_devices(plan: Plan) -> None:
    devices = [plan.models, {name: replace(model) for name, model in plan.models.items()}]
    assert same(piped(plan, Pipeline(2, 7, devices=devices)), plain(plan))


def test_images_are_decoded_once_and_passes_are_full(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    load = Sample.load

    def counted(self: Sample) -> ImageU8:
        decoded.append(self.id)
        return load(self)

    monkeypatch.setattr(Sample, "load", counted)
    counts = Counts()
    pipeline = Pipeline(0, 16, counts=counts)
    only_a = [Task(unit, ("a",)) for unit in plan.units()]
    assert len(list(pipeline.run(plan, only_a, lambda task, predicted: None))) == len(only_a)
    assert len(decoded) == len(set(decoded)) + decoded.count("n01440764/broken.png") - 1
    images = 20 * (1 + 3 + 1)
    assert counts.images == images + 5
    assert counts.passes == -(-images // 16)
    assert counts.repeated == 0
    assert 0 < counts.utilisation <= 1


def test_models_with_the_same_input_share_it(plan: Plan) -> None:
    inputs, places = distinct_inputs(plan)
    assert len(inputs) == 2
    assert places == {"a": 0, "b": 0, "c": 1}


def test_a_job_has_all_shifts_of_its_samples_and_no_other_samples(plan: Plan) -> None:
    jobs = jobs_of(plan)
    assert [len(job.parts) for job in jobs] == [3, 3]
    assert [len(part.samples) for part in jobs[1].parts] == [5, 5, 5]
    assert jobs[0].parts[0].samples == jobs[0].parts[1].samples


@pytest.mark.slow
def test_a_producer_that_dies_is_replaced(plan: Plan) -> None:
    inputs, _ = distinct_inputs(plan)
    jobs = jobs_of(plan)
    seen: list[tuple[int, int]] = []
    with Producers(Workshop.of(plan, inputs), 1, jobs[0]) as producers:
        first = producers._workers[0].process.pid
        for images in producers(iter(jobs)):
            if not seen:
                os.kill(first, signal.SIGKILL)
            seen += [(made.task, made.index) for made in images]
        assert producers._workers[0].process.pid != first
        assert producers.repeated > 0
    assert len(seen) == len(set(seen)) == sum(plan.images_of(unit) for unit in plan.units())


def ends(image: ImageU8, framed: bool) -> ImageU8:
    os.kill(os.getpid(), signal.SIGKILL)
    return image


@pytest.mark.slow
def test_images_that_end_every_producer_are_an_error(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "MAX_DEATHS", 0)
    jobs = jobs_of(plan)
    with Producers(Workshop.of(plan, [ends, ends]), 1, jobs[0]) as producers, pytest.raises(SoritesError):
        list(producers(iter(jobs)))


@pytest.mark.slow
def test_what_cannot_be_sent_is_made_on_threads(plan: Plan) -> None:
    local = lambda image, framed: image  # noqa: E731
    plan = replace(plan, models={name: replace(model, prepare=local) for name, model in plan.models.items()})
    job = jobs_of(plan)[0]
    with pytest.raises(NoProducers):
        Producers(Workshop.of(plan, [local]), 1, job)
    assert same(piped(plan, Pipeline(1, 8)), plain(plan))


def test_images_larger_than_a_slot_arrive_too(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOT_BYTES", 1 << 10)  # the producers have the usual size
    filling = slots.Filling(0, slot=0)
    large = np.arange(4 << 10, dtype=np.uint8)
    made = Made(0, 0, (large,))
    filling.add(made, memoryview(bytearray(1 << 10)))
    assert filling.images[0].inputs[0] is large


def failing(images: list[np.ndarray]) -> Outputs:
    if any(image.mean() > 150 for image in images):
        raise ValueError("too bright")
    return Outputs(np.stack([[image.mean(), 1.0, 2.0, 3.0] for image in images]).astype(np.float32))


def test_a_bad_image_does_not_affect_its_batch(plan: Plan) -> None:
    models = dict.fromkeys(plan.models)
    made = {name: replace(plan.models[name], forward=failing, head=None) for name in models}
    plan = replace(plan, models=made, scorers={})
    expected = plain(plan)
    errors = pl.concat([rows for by_model in expected.values() for rows in by_model.values()])["error"]
    assert 0 < errors.count() < len(errors)
    assert same(piped(plan, Pipeline(0, 16)), expected)


def test_a_failure_of_the_writer_ends_the_run(plan: Plan) -> None:
    def write(task: Task, predicted: Mapping[str, Predictions]) -> None:
        raise SoritesError("disk full")

    with pytest.raises(SoritesError, match="disk full"):
        list(Pipeline(0, 8).run(plan, tasks_of(plan), write))


@pytest.mark.slow
def test_a_run_with_producers_has_the_same_table_and_id(photos: Path, tmp_path: Path, tiny: Tiny) -> None:
    given = {"source": f"folder:{photos}", "models": [tiny()], "shifts": ["contrast"], "limit": 4}
    suite = parse({"name": "s"}, "test")
    first = sorites.run(suite, out=tmp_path / "a", **given)  # type: ignore[arg-type]
    second = sorites.run(suite, out=tmp_path / "b", producers=1, batch=3, **given)  # type: ignore[arg-type]
    key = ["run_id", "image_id", "model", "output"]
    assert first.collect().sort(key).equals(second.collect().sort(key))


def grey(value: int) -> ImageU8:
    return np.full((20, 20, 3), value, np.uint8)


@pytest.mark.slow
def test_samples_of_functions_are_made_in_processes(tmp_path: Path, tiny: Tiny) -> None:
    source = Source("greys", [Sample(f"g{v}", Generated(grey, (v,)), label=0) for v in range(40)])
    suite = parse({"name": "s", "labels": ["n01440764", "n01443537", "n01484850", "n01491361"]}, "test")
    run = functools.partial(sorites.run, suite, source=source, models=[tiny()])
    key = ["image_id"]
    first = run(out=tmp_path / "a").collect().sort(key)
    assert first.equals(run(out=tmp_path / "b", producers=1).collect().sort(key))


def test_clean_images_of_a_job_are_its_clean_samples(plan: Plan) -> None:
    inputs, _ = distinct_inputs(plan)
    job = jobs_of(plan)[0]
    small = Workshop.of(plan, inputs)._plan(job)
    assert isinstance(small.framed, CleanImages)
    assert not small.models
    assert len(small.groups[CLEAN]) == 16
