"""Estimate the time and the disk that a full ImageNet-ES takes at the measured pace."""

from __future__ import annotations

FULL_SHOTS = 1000 * 2 * 69 + 1000 * 2 * 32
"""Both published splits: 1000 pictures, two lights, 64 + 5 and 27 + 5 shots."""
SMALLER = 0.4
"""The share of a camera's JPEG that is left at the smaller quality, roughly."""


def in_time(seconds: float) -> str:
    """Return a duration for readers."""
    for size, unit in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def forecast(seconds_per_shot: float, kept_bytes: float, camera_bytes: float, shots: int = FULL_SHOTS) -> str:
    """Say what the whole dataset would take, from the mean time and sizes of the shots so far."""
    gigabytes = {
        "originals kept": kept_bytes + camera_bytes,
        "kept as JPEG": kept_bytes + SMALLER * camera_bytes,
        "dropped": kept_bytes,
    }
    sizes = ", ".join(
        f"{size * shots / 1e9:,.0f} GB with originals {how.removeprefix('originals ')}" for how, size in gigabytes.items()
    )
    return f"at this pace a full ImageNet-ES ({shots:,} shots) takes {in_time(seconds_per_shot * shots)} and {sizes}"
