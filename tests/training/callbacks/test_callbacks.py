"""A battery and OpticsAugment inside the loops of Lightning and of transformers' Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.conftest import CLASSES
from tests.peers import peer

import sorites
from sorites.core import Model, Outputs
from sorites.core.compute.torch_tools import import_torchvision
from sorites.suites.suite import Suite
from sorites.training import OpticsAugment
from sorites.training.callbacks import (
    SmallBattery,
    lightning_augment,
    lightning_battery,
    trainer_augment,
    trainer_battery,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SIDE = 32
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


def prepare(image: Image.Image) -> np.ndarray:
    values = np.asarray(image.resize((SIDE, SIDE)), np.float32) / 255
    return np.ascontiguousarray(((values - MEAN) / STD).transpose(2, 0, 1), np.float32)


def battery(photos: Path) -> SmallBattery:
    return SmallBattery(
        source=f"folder:{photos}", shifts=["contrast"], levels=[1, 5], labels=list(CLASSES), limit=12
    )


def expected(photos: Path, network: torch.nn.Module, tmp_path: Path) -> dict[str, float]:
    """Return the accuracies of a network as ``sorites run`` computes them, over all given images."""

    def forward(images: list[np.ndarray]) -> Outputs:
        with torch.no_grad():
            found = network(torch.from_numpy(np.stack(images)))
        return Outputs(getattr(found, "logits", found).numpy())

    model = Model("net", forward, lambda image, framed: prepare(Image.fromarray(image)), version="1")
    suite = Suite(name="s", source=f"folder:{photos}", shifts=("contrast",), models=(), labels=CLASSES)
    run = sorites.run(suite, models=[model], levels=[1, 5], limit=12, out=tmp_path / "run")
    rows = sorites.accuracy(run).select("shift", "severity", "value").rows()
    shares = {("clean" if s == "clean" else f"{s}/{v:g}"): share for s, v, share in rows}
    shares["shifted"] = np.mean([share for name, share in shares.items() if name != "clean"])
    return {f"sorites/{name}": share for name, share in shares.items()}


def images() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(8, 3, SIDE, SIDE)).astype(np.float32)), torch.arange(8) % 4


def test_lightning(photos: Path, tmp_path: Path) -> None:
    import_torchvision()  # torchmetrics imports it
    lightning = peer("lightning.pytorch")
    seen: list[torch.Tensor] = []

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3 * SIDE * SIDE, 4)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.layer(self.drop(batch.flatten(1)))

        def training_step(self, batch: Any, place: int) -> torch.Tensor:
            assert self.drop.training
            seen.append(batch[0].clone())
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    torch.manual_seed(0)
    network, logged = Net(), []

    class Kept(lightning.loggers.CSVLogger):
        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            logged.append(metrics)

    given = images()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=Kept(str(tmp_path / "logs")),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            lightning_battery(battery(photos), prepare=prepare, every=2),
            lightning_augment(OpticsAugment(scaled=4), mean=MEAN, std=STD),
        ],
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*given), batch_size=4)
    trainer.fit(network, loader)
    (numbers,) = [metrics for metrics in logged if "sorites/clean" in metrics]
    found = {name: float(value) for name, value in numbers.items() if name.startswith("sorites/")}
    assert found == pytest.approx(expected(photos, network.eval(), tmp_path), abs=1e-6)
    assert trainer.callback_metrics["sorites/shifted"] == pytest.approx(found["sorites/shifted"])
    assert len(seen) == 4
    assert not torch.equal(seen[0], given[0][:4])
    assert not torch.equal(seen[0], seen[2])  # the second epoch draws anew


def test_trainer(photos: Path, tmp_path: Path) -> None:
    import_torchvision()  # transformers imports it
    transformers = peer("transformers")
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    config = transformers.ViTConfig(
        image_size=SIDE, patch_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=4,
    )  # fmt: skip

    class SeenForImageClassification(transformers.ViTForImageClassification):
        def forward(self, pixel_values: Any = None, labels: Any = None, **more: Any) -> Any:
            seen[self.training].append(pixel_values.detach().clone())
            return super().forward(pixel_values=pixel_values, labels=labels, **more)

    torch.manual_seed(0)
    pixels, labels = images()
    rows = [{"pixel_values": p, "labels": int(n)} for p, n in zip(pixels, labels, strict=True)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        SeenForImageClassification(config), arguments, train_dataset=rows, eval_dataset=rows
    )
    trainer_battery(trainer, battery(photos), prepare=prepare, every=2)
    trainer_augment(trainer, OpticsAugment(scaled=4), mean=MEAN, std=STD)
    trainer.train()
    (numbers,) = [entry for entry in trainer.state.log_history if "sorites/clean" in entry]
    found = {name: value for name, value in numbers.items() if name.startswith("sorites/")}
    assert found == pytest.approx(expected(photos, trainer.model.eval(), tmp_path), abs=1e-6)
    assert numbers["epoch"] == 2
    clean = {image.numpy().tobytes() for image in pixels}
    assert len(seen[True]) == 4
    assert not any(image.numpy().tobytes() in clean for batch in seen[True] for image in batch)
    seen[False].clear()
    trainer.evaluate()
    assert all(image.numpy().tobytes() in clean for batch in seen[False] for image in batch)
