"""What a run chooses by itself: the engine by the interpreter's lock, the batch by what fits."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sorites
from sorites.core import Backend, ImageU8, Model, Outputs
from sorites.core.compute.torch_tools import import_torchvision
from sorites.core.errors import BatchTooLarge, SoritesError
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.evaluation.predict import evaluate_images, out_of_memory
from sorites.evaluation.runner import choose, choose_batch, holds_lock, largest_batch, works_alone
from sorites.evaluation.storage.record import read_record
from sorites.suites.suite import parse


def _busy(images: list[ImageU8]) -> Outputs:
    until, total = time.perf_counter() + 0.05, 0
    while time.perf_counter() < until:
        total += sum(range(1000))
    return Outputs(np.zeros((len(images), 4), np.float32))


def _waits(images: list[ImageU8]) -> Outputs:
    time.sleep(0.05)
    return Outputs(np.zeros((len(images), 4), np.float32))


def soon(measured: Callable[[], bool]) -> bool:
    """Return whether a measurement succeeds in one of ten attempts; other processes may disturb some."""
    return any(measured() for _ in range(10))


@pytest.mark.slow
def test_a_model_of_plain_python_holds_the_lock_and_one_that_waits_does_not() -> None:
    assert soon(lambda: holds_lock(Model("busy", _busy)))
    assert soon(lambda: not holds_lock(Model("waits", _waits)))


def _computes(images: list[ImageU8]) -> Outputs:
    held = np.ones((256, 256), np.float32)
    for _ in range(20):
        np.tanh(held, out=held)
    return Outputs(np.zeros((len(images), 4), np.float32))


@pytest.mark.slow
def test_a_model_that_takes_one_caller_works_alone_unless_it_only_waits() -> None:
    why = "is not thread-safe and computes on one core"
    assert soon(lambda: works_alone(Model("busy", _computes, one_caller=True)) == why)
    assert soon(lambda: not works_alone(Model("busy", _computes)))
    assert soon(lambda: not works_alone(Model("waits", _waits, one_caller=True)))


def test_a_function_of_ones_own_gets_processes_and_the_reason(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrices.py").write_text(
        "import numpy as np\ndef logits(images):\n    held = np.ones((256, 256), np.float32)\n    for _ in"
        " range(20):\n        np.tanh(held, out=held)\n    return np.zeros((len(images), 1000),"
        " np.float32)\n"
    )
    monkeypatch.setattr(runner, "MIN_PASSES_FOR_PROCESSES", 1)
    monkeypatch.syspath_prepend(tmp_path)
    suite = {
        "name": "s",
        "source": f"folder:{photos}",
        "shifts": ["contrast"],
        "models": ["python:matrices:logits"],
    }
    plan = plans.make(parse(suite, "test"))
    why = "processes, 2: python:matrices:logits is not thread-safe and computes on one core"
    assert soon(lambda: choose(plan, 2).said == why)


def _small(images: list[ImageU8]) -> Outputs:
    if len(images) > 40:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return Outputs(np.stack([np.full(4, image.mean()) for image in images]).astype(np.float32))


@pytest.mark.slow
def test_the_largest_batch_is_the_last_that_fits() -> None:
    assert largest_batch(Model("small", _small), 8) == 32
    assert largest_batch(Model("waits", _waits), 8, 16) == 16
    with pytest.raises(ZeroDivisionError):
        largest_batch(Model("broken", lambda images: 1 / 0), 8)  # type: ignore[arg-type,return-value]


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_shown_in_halves() -> None:
    images = [np.full((4, 4, 3), i, np.uint8) for i in range(100)]
    sizes: list[int] = []

    def counted(some: list[ImageU8]) -> Outputs:
        sizes.append(len(some))
        return _small(some)

    with pytest.warns(UserWarning, match="memory for 100 images"):
        outputs, errors = evaluate_images(Model("halved", counted), images, True)
    assert errors == [None] * 100
    assert outputs.logits is not None
    np.testing.assert_array_equal(outputs.logits[:, 0], np.arange(100))
    assert sizes == [100, 50, 25, 25, 50, 25, 25]


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 3",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
        "MPS backend out of memory (MPS allocated: 9 GB)",
        "std::bad_alloc",
    ],
)
def test_libraries_say_in_their_own_words_that_memory_ran_out(message: str) -> None:
    assert out_of_memory(RuntimeError(message))


def test_other_errors_are_not_about_memory() -> None:
    assert out_of_memory(MemoryError())
    for message in ("CUBLAS_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_NOT_SUPPORTED", "mat1 and mat2 shapes"):
        assert not out_of_memory(RuntimeError(message))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*memory for 8 images")
def test_the_activations_of_a_failed_batch_are_gone_when_it_is_tried_again() -> None:
    """A traceback keeps all variables of the forward pass alive, and so the memory that was too little."""
    activations: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def forward(images: list[ImageU8]) -> Outputs:
        alive.append(sum(ref() is not None for ref in activations))
        hidden = np.ones((len(images), 1000))
        activations.append(weakref.ref(hidden))
        if len(images) > 2:
            raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")
        return Outputs(np.ones((len(images), 3), np.float32))

    outputs, errors = evaluate_images(Model("m", forward), [np.zeros((4, 4, 3), np.uint8)] * 8, True)
    assert len(outputs) == 8
    assert errors == [None] * 8
    assert alive == [0] * 7


@pytest.mark.slow
def test_memory_that_runs_out_with_a_batch_that_rows_depend_on_ends_the_run() -> None:
    """Halving would change the rows, so the message names the batch size to type."""
    model = Model("m", _small, backend=Backend("torch", "cuda", batch_matters=True)).with_batch(64)
    with pytest.raises(BatchTooLarge) as caught:
        evaluate_images(model, [np.zeros((4, 4, 3), np.uint8)] * 3, True)
    assert caught.value.fields == {"model": "m", "batch": 64}
    assert "32" in str(caught.value)


def test_a_small_run_takes_threads_and_says_so(photos: Path) -> None:
    plan = plans.make(parse({"name": "s", "source": f"folder:{photos}", "shifts": ["contrast"]}, "test"))
    assert choose(plan, 2).said == "local, 2 threads: the run is small"
    assert choose(plan, 1).said == "local, 1 thread: the run is for one worker"
    assert choose_batch(plan, 8) == (8, "8 images: on a CPU larger batches are not faster")


@pytest.mark.slow
def test_precision_stands_in_the_run_and_in_its_id(photos: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    import_torchvision()
    import timm

    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "w.safetensors")
    model = f"net=timm:test_vit@{tmp_path / 'w.safetensors'}"
    ids, answers = {}, {}
    for precision in (None, "float32", "bfloat16", "int8"):
        suite = parse(
            {
                "name": "s",
                "source": f"folder:{photos}",
                "limit": 4,
                "models": [model],
                "precision": precision,
            },
            "test",
        )
        table = sorites.run(suite, out=tmp_path / str(precision)).collect().sort("image_id")
        record = read_record(tmp_path / str(precision))
        (place,) = record.as_json()["ran_on"]
        on_torch = precision in ("bfloat16", "int8")
        flags = {"tf32": "off", "kernels": "deterministic"}
        assert place == {
            "engine": "local",
            "device": "cpu",
            "precision": precision or "float32",
            "batch": 8,
            "models": ["net"],
            "library": "torch" if on_torch else "onnxruntime",
            **({"options": flags} if on_torch else {}),
        }
        assert record.batch == (8 if precision == "bfloat16" else None)
        ids[precision], answers[precision] = record.run_id, table["conf"].to_numpy()
        assert table["error"].null_count() == 4
    assert len(set(ids.values())) == 4
    np.testing.assert_allclose(answers["bfloat16"], answers[None], rtol=0.1)
    assert (answers["bfloat16"] != answers[None]).any()
    assert (answers["int8"] != answers[None]).any()


def test_a_device_that_is_not_there_is_an_error_in_words(photos: Path) -> None:
    suite = parse(
        {"name": "s", "source": f"folder:{photos}", "models": ["lite0"], "device": "cuda:7"}, "test"
    )
    with pytest.raises(SoritesError, match="device cuda:7"):
        plans.make(suite)
