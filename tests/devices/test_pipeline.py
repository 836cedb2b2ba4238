"""The pipeline on pretended GPUs: one copy to the device and one wait per pass, and several GPUs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.devices.pretended import MixedDevices, pretended  # noqa: E402
from tests.devices.test_models import CLASSES, SIZE, Network, loaded  # noqa: E402

import sorites  # noqa: E402
from sorites.core import ArrayRef, Backend, ImageU8, Model, Outputs, Sample, Source  # noqa: E402
from sorites.core.compute.arithmetic import read_flags, write_flags  # noqa: E402
from sorites.core.compute.passes import Staged, Wait, in_constant_passes, start_pass, then  # noqa: E402
from sorites.core.compute.transfers import counted_transfers  # noqa: E402
from sorites.core.errors import BatchTooLarge  # noqa: E402
from sorites.evaluation import plan as plans  # noqa: E402
from sorites.evaluation.pipeline.consume import Counts  # noqa: E402
from sorites.evaluation.pipeline.devices import models_by_device  # noqa: E402
from sorites.evaluation.pipeline.measure import measure  # noqa: E402
from sorites.evaluation.pipeline.run import Pipeline  # noqa: E402
from sorites.evaluation.plan import Plan  # noqa: E402
from sorites.evaluation.predict import Predictions  # noqa: E402
from sorites.evaluation.runner import choose_batch, largest_batch  # noqa: E402
from sorites.evaluation.storage.record import read_record  # noqa: E402
from sorites.evaluation.worker import Task, own_gpu  # noqa: E402
from sorites.suites.suite import parse  # noqa: E402

SUITE = {
    "name": "t",
    "shifts": [{"name": "contrast", "severities": [0.5]}],
    "labels": list(CLASSES),
    "scorers": ["msp", "odin"],
}
SPEC = f"net=python:{__name__}:network"


def network() -> Any:
    return Network().eval()


@pytest.fixture
def source() -> Source:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*SIZE, 3), np.uint8) for _ in range(37)]
    return Source("given", [Sample(f"s{i}", ArrayRef(image), i % 5) for i, image in enumerate(images)])


def plan_of(source: Source, batch: int = 8, **keys: Any) -> Plan:
    return plans.make(parse({**SUITE, "models": [SPEC], **keys}, "test"), source).with_batch(batch)


def rows_of(plan: Plan, pipeline: Pipeline) -> dict[Task, Any]:
    written: dict[Task, Any] = {}

    def write(task: Task, predicted: dict[str, Predictions]) -> None:
        written[task] = predicted["net"].rows

    tasks = [Task(unit, ("net",)) for unit in plan.units()]
    assert len(list(pipeline.run(plan, tasks, write))) == len(tasks)  # type: ignore[arg-type]
    return written


def same(first: dict[Task, Any], second: dict[Task, Any]) -> bool:
    return first.keys() == second.keys() and all(first[task].equals(second[task]) for task in first)


@pytest.mark.slow
def test_several_gpus_share_the_batches_and_give_the_rows_of_one(source: Source) -> None:
    used: set[int] = set()
    with pretended("cuda", devices=3):
        plan = plan_of(source)
        alone = rows_of(plan, Pipeline(0, 8))
        devices = models_by_device(plan)
        assert [models["net"].backend.device for models in devices] == ["cuda", "cuda:1", "cuda:2"]
        for number, models in enumerate(devices):
            assert {buffer.device.index for buffer in models["net"].module.buffers()} == {number}
            assert models["net"].batch == 8
        noted = [{"net": _noting(models["net"], number, used)} for number, models in enumerate(devices)]
        assert same(rows_of(plan, Pipeline(0, 4, noted)), alone)
    assert len(used) > 1


def _noting(model: Model, number: int, used: set[int]) -> Model:
    def note(_: int, outputs: Outputs) -> Outputs:
        used.add(number)
        return outputs

    return replace(model, forward=then(model.forward, note))


def test_a_named_gpu_and_objects_use_one_device(source: Source) -> None:
    with pretended("cuda", devices=2):
        assert len(models_by_device(plan_of(source, device="cuda:1"))) == 1
        given = plans.make(parse({**SUITE, "models": ["net"]}, "t"), source, {"net": loaded("cuda")})
        assert len(models_by_device(given)) == 1


def test_tensors_of_two_gpus_do_not_mix() -> None:
    with pretended("cuda", devices=2):
        one, other = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
        assert (one.device.index, other.device.index) == (0, 1)
        assert other.to("cuda:0").device.index == 0
        with pytest.raises(MixedDevices):
            one + other


@pytest.mark.slow
def test_a_run_records_every_gpu_and_has_the_id_of_one(tmp_path: Path, source: Source) -> None:
    suite, tables = parse({**SUITE, "scorers": []}, "test"), []
    for devices in (1, 2):
        with pretended("cuda", devices=devices):
            out = tmp_path / str(devices)
            run = sorites.run(suite, source=source, models=[SPEC], out=out, producers=1, batch=8)
            tables.append(run.collect().sort("image_id"))
            places = read_record(out).as_json()["ran_on"]
            assert [place["device"] for place in places] == ["cuda", "cuda:1"][:devices]
            assert all(place["hardware"]["name"] == "a pretended GPU" for place in places)
    assert tables[0].equals(tables[1])


def test_worker_processes_take_turns_with_gpus(tmp_path: Path, source: Source) -> None:
    with pretended("cuda", devices=2):
        suite = parse({**SUITE, "scorers": []}, "test")
        sorites.run(suite, source=source, models=[SPEC], out=tmp_path / "run", batch=8, producers=0)
        record = read_record(tmp_path / "run")
        assert [own_gpu(record, number).device for number in (None, 0, 1, 2)] == [
            None, "cuda:0", "cuda:1", "cuda:0",
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_pass_is_one_copy_to_the_device_and_one_wait(kind: str) -> None:
    images = [np.full((*SIZE, 3), i, np.uint8) for i in range(8)]
    with pretended(kind) as counts:
        model = loaded(kind, module=Quiet()).with_batch(8)
        counts.to_device = counts.from_device = counts.syncs = counts.bytes_to_device = 0
        outputs = model.forward(images)
        assert (counts.to_device, counts.from_device, counts.syncs) == (1, 1, 1)
        assert counts.bytes_to_device == 8 * SIZE[0] * SIZE[1] * 3
        moved = counted_transfers(lambda: model.forward(images))
    assert (moved.to_device, moved.from_device, moved.bytes_to_device) == (1, 1, 8 * SIZE[0] * SIZE[1] * 3)
    assert outputs.features is not None
    assert outputs.logits is not None
    assert outputs.logits.shape == (8, 5)
    assert np.isfinite(outputs.logits).all()


class Quiet(Network):
    """The network without its look at the values, which waits for the device."""

    def forward(self, x: Any) -> Any:
        features = self.stages(x).mean((2, 3))
        return self.fc(features), features


def test_the_next_pass_is_started_before_the_last_is_awaited(source: Source) -> None:
    events: list[str] = []

    def start(images: Any) -> Wait:
        number = sum(event.startswith("start") for event in events)
        events.append(f"start {number}")

        def wait() -> Outputs:
            events.append(f"wait {number}")
            return Outputs(np.zeros((len(images), 5), np.float32))

        return wait

    plan = plan_of(source, scorers=[])
    backend = Backend("torch", "cuda", batch_matters=True)
    model = Model("net", Staged(start), labels=CLASSES, version="1", backend=backend).with_batch(8)
    plan, counts = replace(plan, models={"net": model}), Counts()
    rows_of(plan, Pipeline(0, 8, counts=counts))
    assert counts.passes == 10
    assert counts.decoded == 37
    waits = [event for event in events if event.startswith("wait")]
    assert waits == [f"wait {number}" for number in range(10)]
    ahead = [
        sum(e.startswith("start") for e in events[:i]) - int(event.split()[1])
        for i, event in enumerate(events)
        if event.startswith("wait")
    ]
    assert set(ahead) <= {1, 2}


def test_passes_in_two_steps_compose() -> None:
    sizes: list[int] = []

    def start(images: Any) -> Wait:
        sizes.append(len(images))
        sums = np.array([[float(np.sum(image))] for image in images], np.float32)
        return lambda: Outputs(sums)

    forward = then(
        in_constant_passes(Staged(start), 3),
        lambda n, out: replace(out, logits=out.logits + n),  # type: ignore[operator]
    )
    assert isinstance(forward, Staged)
    stack = np.arange(8, dtype=np.uint8)[:, None]
    for images in (stack, list(stack)):
        wait = start_pass(forward, images)
        np.testing.assert_array_equal(wait().logits, np.arange(8)[:, None] + 8)
    assert sizes == [3, 3, 3] * 2
    plain = then(lambda images: Outputs(np.ones((len(images), 1), np.float32)), lambda n, out: out)
    assert not isinstance(plain, Staged)
    assert len(start_pass(plain, stack)()) == 8


@pytest.mark.slow
def test_memory_that_runs_out_in_the_pipeline_is_free_when_the_run_ends(source: Source) -> None:
    activations: list[weakref.ref[np.ndarray]] = []

    def start(images: Any) -> Wait:
        hidden = np.ones((len(images), 1000))
        activations.append(weakref.ref(hidden))
        raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    model = Model("net", Staged(start), labels=CLASSES, version="1")
    model = replace(model, backend=Backend("torch", "cuda", batch_matters=True)).with_batch(8)
    plan = replace(plan_of(source, scorers=[]), models={"net": model})
    with pytest.raises(BatchTooLarge, match="4") as caught:
        rows_of(plan, Pipeline(0, 8))
    assert caught.value.fields["batch"] == 8
    assert len(activations) >= 2
    assert [ref() for ref in activations] == [None] * len(activations)


@pytest.mark.slow
def test_the_batch_is_found_by_trial_with_scorers_that_look_inside(source: Source) -> None:
    sizes: list[int] = []

    class Looking:
        def look(self, model: Model, images: Any, framed: bool) -> Any:
            sizes.append(len(images))
            if len(images) > 64:
                raise RuntimeError("CUDA out of memory")

    def forward(images: Any) -> Outputs:
        return Outputs(np.zeros((len(images), 5), np.float32))

    model = Model(
        "net", forward, labels=CLASSES, version="1", backend=Backend("torch", "cuda", "float32", True)
    )
    assert largest_batch(model, 8, 256, [Looking()]) == 64  # type: ignore[list-item]
    assert sizes == [16, 32, 64, 128]
    plan = replace(plan_of(source), models={"net": model}, scorers={})
    assert choose_batch(plan, 8) == (256, "256 images, which fit on cuda")


@pytest.mark.slow
def test_a_measurement_says_what_a_gpu_reached(source: Source) -> None:
    with pretended("cuda"):
        plan = plans.make(
            parse({**SUITE, "scorers": [], "models": [f"net=python:{__name__}:Quiet"]}, "t"), source
        )
        rates = measure(plan, 1, 8, 1e6)
    assert rates.devices == ("cuda",)
    assert rates.hardware["name"] == "a pretended GPU"
    assert (rates.images, rates.passes, rates.least_passes) == (74, 10, 10)
    assert (rates.decodes_per_image, rates.copies_to_device, rates.waits) == (1.0, 1.0, 1.0)
    assert rates.bytes_per_image == SIZE[0] * SIZE[1] * 3
    assert 0 < rates.utilisation <= 1
    said = "\n".join(rates.lines())
    assert "a pretended GPU" in said
    assert "1.00 per image of the source" in said


@pytest.fixture
def loose_flags() -> Iterator[None]:
    before = read_flags()
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = True
    yield
    write_flags(before)


@pytest.mark.usefixtures("loose_flags")
def test_no_layer_sees_other_flags_in_models_scorers_and_explanations() -> None:
    from sorites import core
    from sorites.training.explain import gradcam

    seen: list[bool] = []

    class Watched(Quiet):
        def forward(self, x: Any) -> Any:
            flags = read_flags()
            seen.append(set(flags.precisions) <= {"ieee"} and flags.cudnn and not flags.benchmark)
            return super().forward(x)

    before = read_flags()
    images: list[ImageU8] = [np.full((*SIZE, 3), 20 * i, np.uint8) for i in range(4)]
    model, explained = loaded("cpu", "bfloat16", Watched()), loaded("cpu", "bfloat16", Watched())
    seen.clear()

    def work(number: int) -> None:
        for turn in range(4):
            kind = (number + turn) % 3
            if kind == 0:
                model(images)
            else:
                core.scorer("odin" if kind == 1 else "gram").look(model, images)

    def explain() -> None:
        for _ in range(4):
            gradcam.grad_cam(explained, images)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    threads.append(threading.Thread(target=explain))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) >= 24
    assert all(seen)
    assert read_flags() == before
