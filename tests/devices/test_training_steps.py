"""Training steps on a pretended GPU: what is copied, and that no step waits for the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.devices.pretended import Counts, pretended
from tests.training.small_recipe import recipe

from sorites.training import history, session
from sorites.training.augment import OpticsAugment
from sorites.training.session import Training
from sorites.training.steps import BrokenLoss


def on_gpu(photos: Path, folder: Path, **keys: Any) -> Training:
    made = recipe(photos, steps=8, mixed_precision=False, validate_every=100.0, **keys)
    return Training(made, folder, "cuda", 1, lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "copies"),
    [({}, 2), ({"augment": "optics"}, 4), ({"accumulate": 2, "optimiser": {"lr": 0.01, "clip": 1.0}}, 2)],
    ids=["plain", "optics", "accumulate and clip"],
)
def test_no_step_waits_for_the_device(
    photos: Path, tmp_path: Path, keys: dict[str, Any], copies: int
) -> None:
    """Two copies to the device, images and labels; OpticsAugment has its kernels' numbers and weights too."""
    with pretended("cuda") as counts:
        training = on_gpu(photos, tmp_path, **keys)
        steps = training.steps
        batches = [steps.batches.batch(step) for step in range(8)]
        steps.take(batches[0])  # makes the spectra of the kernels
        before = Counts(**vars(counts))
        taken = [steps.take(batch) for batch in batches[1:]]
        assert counts.from_device == before.from_device
        assert counts.to_device - before.to_device == copies * 7
        losses = [step.loss for step in steps.read(taken)]
        assert counts.from_device == before.from_device + 1
    assert np.isfinite(losses).all()


@pytest.mark.slow
def test_the_numbers_are_those_of_a_cpu(photos: Path, tmp_path: Path) -> None:
    rows = {}
    for device in ("cpu", "cuda"):
        with pretended("cuda"):
            made = recipe(
                photos, steps=6, mixed_precision=False, augment="augmix,optics", data={"validation": 0.2}
            )
            training = Training(made, tmp_path / device, device, 1, lambda text: None)
            training.take_all(
                (training.steps.batches.batch(step) for step in range(6)), lambda count, text: None, 1e9
            )
            training._read()
            rows[device] = training.history.rows
    assert [row["step"] for row in rows["cuda"]] == [row["step"] for row in rows["cpu"]]
    for ours, theirs in zip(rows["cpu"], rows["cuda"], strict=True):
        for key in ours.keys() - {"images_per_second"}:
            assert theirs[key] == pytest.approx(ours[key], rel=1e-3), key


def test_a_loss_that_breaks_is_found_when_it_is_read_and_never_kept(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the step that broke, and no checkpoint has its weights."""
    monkeypatch.setattr(session, "STEPS_PER_READ", 3)
    with pretended("cuda"):
        training = on_gpu(photos, tmp_path)
        real = training.steps._loss

        def breaking(views: Any, labels: Any) -> Any:
            loss, right = real(views, labels)
            return (loss * float("nan") if training.step == 1 else loss), right

        training.steps._loss = breaking  # type: ignore[method-assign]
        batches = (training.steps.batches.batch(step) for step in range(8))
        with pytest.raises(BrokenLoss) as broken:
            training.take_all(batches, lambda count, text: None, 1e9)
    assert broken.value.step == 1
    assert training.step == 3
    assert not [*tmp_path.glob("checkpoint-*")]


def test_a_checkpoint_reads_first(photos: Path, tmp_path: Path) -> None:
    with pretended("cuda"):
        training = on_gpu(photos, tmp_path)
        for step in range(2):
            training._unread.append(training.steps.take(training.steps.batches.batch(step)))
            training.step = step + 1
        training.checkpoint()
        assert len(training.history.rows) == 2
        assert not training._unread
    assert len(history.read(tmp_path)) == 2


@pytest.mark.parametrize("count", [8, 64])
def test_optics_augment_takes_as_many_operations_for_any_batch(count: int) -> None:
    """Each operation is started by the CPU, so that one by one a GPU would wait for it."""
    augment = OpticsAugment(40)
    images = torch.rand(count, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    augment.seed(0)
    on_cpu = augment(images)
    with pretended("cuda") as counts:
        far = images.to("cuda")
        augment.of_rows(far[:1], 0, 1)  # makes the spectra of the kernels
        before = counts.operations
        augment.seed(0)
        made = augment.of_rows(far, 0, count)[0]
        operations = counts.operations - before
        torch.testing.assert_close(made.cpu(), on_cpu, rtol=0, atol=2e-6)
    assert operations <= 25
