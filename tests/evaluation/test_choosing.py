"""What a run chooses by itself: the engine by the interpreter's lock, the batch by what fits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import sorites
from sorites.core import ImageU8, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.core.torch_tools import import_torchvision
from sorites.evaluation import plan as plans
from sorites.evaluation import runner
from sorites.evaluation.predict import evaluate_images
from sorites.evaluation.runner import choose, choose_batch, holds_lock, largest_batch, works_alone
from sorites.evaluation.storage.folder import read_info
from sorites.suites.suite import parse


def _busy(images: list[ImageU8]) -> Outputs:
    until, total = time.perf_counter() + 0.05, 0
    while time.perf_counter() < until:
        total += sum(range(1000))
    return Outputs(np.zeros((len(images), 4), np.float32))


def _waits(images: list[ImageU8]) -> Outputs:
    time.sleep(0.05)
    return Outputs(np.zeros((len(images), 4), np.float32))


def test_a_model_of_plain_python_holds_the_lock_and_one_that_waits_does_not() -> None:
    assert holds_lock(Model("busy", _busy))
    assert not holds_lock(Model("waits", _waits))


def _computes(images: list[ImageU8]) -> Outputs:
    held = np.ones((256, 256), np.float32)
    for _ in range(20):
        np.tanh(held, out=held)
    return Outputs(np.zeros((len(images), 4), np.float32))


def test_a_model_that_takes_one_caller_works_alone_unless_it_only_waits() -> None:
    assert (
        works_alone(Model("busy", _computes, one_caller=True))
        == "is not thread-safe and computes on one core"
    )
    assert not works_alone(Model("busy", _computes))
    assert not works_alone(Model("waits", _waits, one_caller=True))


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
    chosen = choose(plans.make(parse(suite, "test")), 2)
    assert chosen.engine.name == "processes"
    assert chosen.said == "processes, 2: python:matrices:logits is not thread-safe and computes on one core"


def _small(images: list[ImageU8]) -> Outputs:
    if len(images) > 40:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return Outputs(np.stack([np.full(4, image.mean()) for image in images]).astype(np.float32))


def test_the_largest_batch_is_the_last_that_fits() -> None:
    assert largest_batch(Model("small", _small), 8) == 32
    assert largest_batch(Model("waits", _waits), 8, 16) == 16
    with pytest.raises(ZeroDivisionError):
        largest_batch(Model("broken", lambda images: 1 / 0), 8)  # type: ignore[arg-type,return-value]


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


def test_a_small_run_takes_threads_and_says_so(photos: Path) -> None:
    plan = plans.make(parse({"name": "s", "source": f"folder:{photos}", "shifts": ["contrast"]}, "test"))
    assert choose(plan, 2).said == "local, 2 threads: the run is small"
    assert choose(plan, 1).said == "local, 1 thread: the run is for one worker"
    assert choose_batch(plan, 8) == (8, "8 images: on a CPU larger batches are not faster")


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
        info = read_info(tmp_path / str(precision))
        assert info["ran_on"] == {
            "engine": "local",
            "device": "cpu",
            "precision": precision or "float32",
            "batch": 8,
        }
        ids[precision], answers[precision] = info["run_id"], table["conf"].to_numpy()
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
