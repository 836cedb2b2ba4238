"""Lines of a proof: a figure, perhaps with its interval and with a bar that it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A figure with its name, and where it has a bar, whether it must lie above or below it."""

    name: str
    value: float
    note: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def missed(self) -> bool:
        return (self.least is not None and self.value < self.least) or (
            self.most is not None and self.value > self.most
        )

    def __str__(self) -> str:
        bars = [
            f"wanted {sign} {bar:g}"
            for sign, bar in ((">=", self.least), ("<=", self.most))
            if bar is not None
        ]
        verdict = ["MISSED" if self.missed else "holds"] if bars else []
        return f"{self.name:<62} {self.value:>8.2f}   {'; '.join(filter(None, [*bars, *verdict, self.note]))}"
