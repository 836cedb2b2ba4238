"""The training history: loss, accuracy and learning rate in a few hundred rows, however long the training."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict

from sorites.io.files import write_bytes
from sorites.metrics import wilson_interval


def share_with_interval(value: float, n: int) -> dict[str, Any]:
    """Return an accuracy over ``n`` images with its 95 % Wilson interval, as a plain dict."""
    frame = pl.DataFrame({"accuracy": [value], "n": [n]})
    return frame.with_columns(**wilson_interval(pl.col("accuracy"), pl.col("n"))).row(0, named=True)


FILE = "history.jsonl"
# Approximate number of rows per training.
TARGET_ROWS = 400

Row = dict[str, Any]


class Sums(BaseModel):
    """Sums over the steps since the last row of training means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: float = 0.0
    right: int = 0
    seen: int = 0
    steps: int = 0
    seconds: float = 0.0

    def plus(self, loss: float, right: int, seen: int, seconds: float) -> Sums:
        """Return the sums with one further step."""
        return Sums(
            loss=self.loss + loss,
            right=self.right + right,
            seen=self.seen + seen,
            steps=self.steps + 1,
            seconds=self.seconds + seconds,
        )


class HistoryState(BaseModel):
    """The part of a history that a checkpoint stores."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: list[Row]
    sums: Sums


class History:
    """Rows of training means since the previous row, and of validation results."""

    def __init__(self, steps: int) -> None:
        self.every = max(1, steps // TARGET_ROWS)
        self.rows: list[Row] = []
        self._sums = Sums()
        self._last: deque[tuple[float, float | None, float]] = deque(maxlen=20)

    def add(
        self,
        step: int,
        loss: float,
        right: int | None,
        seen: int,
        seconds: float,
        rate: float,
        epoch: float,
    ) -> None:
        """Record a step; every ``self.every`` steps a row is written.

        Args:
            step: The step.
            loss: Its loss.
            right: The number of correct images; None of detectors, whose rows have no accuracy.
            seen: The number of images.
            seconds: The time it took.
            rate: The learning rate.
            epoch: The epoch.
        """
        self._sums = sums = self._sums.plus(loss, right or 0, seen, seconds)
        if (step + 1) % self.every == 0:
            means = {"loss": sums.loss / sums.steps}
            if right is not None:
                means["accuracy"] = sums.right / sums.seen
            speed = sums.seen / max(sums.seconds, 1e-9)
            self.rows.append(
                {
                    "step": step + 1,
                    "epoch": round(epoch, 4),
                    "lr": rate,
                    **means,
                    "images_per_second": round(speed, 1),
                }
            )
            self._sums = Sums()
        share = None if right is None else right / seen
        self._last.append((loss, share, seen / max(seconds, 1e-9)))

    def text(self, validation: float | None = None) -> str:
        """Return a progress text: means over the last steps, and the latest validation accuracy."""
        if not self._last:
            return ""
        losses, shares, speeds = zip(*self._last, strict=True)
        known = [share for share in shares if share is not None]
        accuracy = f"  accuracy {100 * sum(known) / len(known):.0f} %" if known else ""
        suffix = "" if validation is None else f"  validation {100 * validation:.1f} %"
        loss, speed = sum(losses) / len(losses), sum(speeds) / len(speeds)
        return f"loss {loss:.2f}{accuracy}{suffix}  {speed:.0f} images/s"

    def validated(self, step: int, epoch: float, loss: float, right: int | None, n: int) -> None:
        """Record validation results after a step; detectors have no accuracy."""
        if right is None:
            self.rows.append({"step": step, "epoch": round(epoch, 4), "validation_loss": loss, "n": n})
            return
        share = share_with_interval(right / n, n)
        self.rows.append(
            {
                "step": step,
                "epoch": round(epoch, 4),
                "validation_loss": loss,
                "validation_accuracy": share.pop("accuracy"),
                **share,
            }
        )

    def state(self) -> HistoryState:
        """Return the state to store in a checkpoint."""
        return HistoryState(rows=list(self.rows), sums=self._sums)

    def restore(self, state: HistoryState) -> None:
        self.rows, self._sums = list(state.rows), state.sums

    def write(self, folder: Path) -> None:
        write_bytes("".join(json.dumps(row) + "\n" for row in self.rows).encode(), folder / FILE)


def read(folder: Path) -> list[Row]:
    """Return the rows of the history file of a training that may be running, or an empty list."""
    path = folder / FILE
    return parse(path.read_bytes()) if path.exists() else []


def parse(content: bytes) -> list[Row]:
    """Return the rows of the content of a history file."""
    return [json.loads(line) for line in content.decode().splitlines()]
