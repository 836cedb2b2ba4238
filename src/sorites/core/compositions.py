"""Several shifts applied to one image: a grid of two or three severities, or a camera with one severity.

The parts are applied in the order of their stages (scene, optics, sensor, isp, codec), parts of the same
stage in the order given. Each part draws with the generator of its own name, as if it were applied alone, and
nothing is rounded in between: an image with all severities but one at 0 equals that of the one shift, bit for
bit. A shift that works on 8 bits itself, such as JPEG, still does so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sorites.core.errors import SoritesError
from sorites.core.samples import Box, ImageF32
from sorites.core.types import STAGES, Draw, SettingValue, Shift

# Between the names of the shifts of a grid.
TIMES = " x "
FAMILY = "combined"
# The unit of a named camera's severity.
LEVEL = "level"
# The number of shifts that a grid can have.
MOST_AXES = 3

# The severity of each part.
Severities = tuple[float, ...]


@dataclass(eq=False)
class ComposedShift(Shift):
    """Several shifts as one.

    Attributes:
        parts: The shifts, in the order in which they are applied.
        severities_at: Returns the severity of each part at a setting.
    """

    parts: tuple[Shift, ...] = ()
    severities_at: Callable[[Any], Severities] = tuple
    record_severities: bool = False
    """True if the severities of the parts are recorded as params that the shift chose."""

    def sweep_with_chosen_params(
        self, image: ImageF32, settings: Sequence[SettingValue], rng: np.random.Generator
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        """Yield one image per setting; all parts draw with the same generator."""
        return self.sweep_drawn(image, settings, lambda name: rng)

    def sweep_drawn(
        self, image: ImageF32, settings: Sequence[SettingValue], draw: Draw
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        """Yield one image per setting; consecutive settings share the parts that they have in common."""
        rows = [self.severities_at(setting) for setting in settings]
        for row, (made, chosen) in zip(rows, _swept(self.parts, image, rows, draw), strict=True):
            own = {part.name: severity for part, severity in zip(self.parts, row, strict=True)}
            yield made, {**own, **chosen} if self.record_severities else chosen

    def boxes_after(
        self, boxes: Sequence[Box], setting: SettingValue, draw: Draw, size: tuple[int, int]
    ) -> tuple[Box, ...]:
        """Return ground-truth boxes after all parts, in their order."""
        for part, severity in zip(self.parts, self.severities_at(setting), strict=True):
            boxes = part.boxes_after(boxes, severity, draw, size)
        return tuple(boxes)


def _swept(
    parts: Sequence[Shift], image: ImageF32, rows: Sequence[Severities], draw: Draw
) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
    """Yield one image per row of severities; neighbouring rows with the same severity share a part."""
    if not parts:
        yield from ((image if len(rows) == 1 else image.copy(), {}) for _ in rows)
        return
    groups = [(first, list(group)) for first, group in itertools.groupby(rows, key=lambda row: row[0])]
    swept = parts[0].sweep_drawn(image, [first for first, _ in groups], draw)
    for (_, group), (made, chosen) in zip(groups, swept, strict=True):
        own = {f"{parts[0].name}.{key}": value for key, value in chosen.items()}
        for final, more in _swept(parts[1:], made, [row[1:] for row in group], draw):
            yield final, {**own, **more}


def in_order(parts: Sequence[Shift]) -> tuple[Shift, ...]:
    """Return shifts in the order in which they are applied together."""
    return tuple(sorted(parts, key=lambda part: STAGES.index(part.stage)))


def check_parts(name: str, parts: Sequence[Shift]) -> None:
    """Raise a ``SoritesError`` unless every shift has a severity and occurs once."""
    names = [part.name for part in parts]
    for part in parts:
        if not part.levels:
            raise SoritesError(f"{name}: {part.name} has no severity, so it cannot be combined with others")
        if names.count(part.name) > 1:
            raise SoritesError(f"{name}: {part.name} is listed twice")


def grid_shift(parts: Sequence[Shift], severities: Sequence[Sequence[float]]) -> ComposedShift:
    """Return a shift whose settings are all combinations of the severities of two or three shifts and of 0.

    Args:
        parts: The shifts; their names, joined by ``x``, are the name of the result.
        severities: The severities of each, above 0.

    Returns:
        The shift. Its settings map the names of the shifts to severities, in the order in which they are
        made fastest; the clean image is not among them.
    """
    name = TIMES.join(part.name for part in parts)
    check_parts(name, parts)
    if not 2 <= len(parts) <= MOST_AXES:
        raise SoritesError(f"{name}: expected 2 or 3 shifts joined by {TIMES.strip()!r}, got {len(parts)}")
    values = dict(zip((part.name for part in parts), severities, strict=True))
    ordered = in_order(parts)
    names = [part.name for part in ordered]
    rows = itertools.product(*((0.0, *sorted(set(map(float, values[name])))) for name in names))
    settings = tuple(dict(zip(names, row, strict=True)) for row in rows if any(row))

    def severities_at(setting: Mapping[str, Any]) -> Severities:
        return tuple(float(setting[name]) for name in names)

    return ComposedShift(
        name,
        _not_alone,
        FAMILY,
        TIMES.join(part.unit for part in parts),
        settings=settings,
        version=", ".join(f"{part.name} {part.version}" for part in ordered),
        about=f"Apply {' and '.join(names)} together, in this order.",
        options=_options(parts),
        moves_objects=any(part.moves_objects for part in parts),
        parts=ordered,
        severities_at=severities_at,
    )


def camera_shift(name: str, parts: Sequence[Shift], severities: Sequence[Sequence[float]]) -> ComposedShift:
    """Return a shift with one severity that turns several shifts together.

    Args:
        name: The name of the result.
        parts: The shifts.
        severities: The severities of each at levels 1, 2, ...; equally many for all. In between they are
            interpolated linearly, from 0 at level 0.
    """
    check_parts(name, parts)
    count = len(severities[0])
    levels = tuple(float(level) for level in range(1, count + 1))
    values = dict(zip((part.name for part in parts), severities, strict=True))
    ordered = in_order(parts)
    tables = [(0.0, *map(float, values[part.name])) for part in ordered]

    def severities_at(level: float) -> Severities:
        if not 0 <= level <= count:
            raise SoritesError(f"{name}: expected a severity from 0 to {count} (level), got {level!r}")
        return tuple(float(np.interp(level, (0.0, *levels), table)) for table in tables)

    described = (
        f"{part.name} {part.version} {table[1:]}" for part, table in zip(ordered, tables, strict=True)
    )
    return ComposedShift(
        name,
        _not_alone,
        FAMILY,
        LEVEL,
        levels,
        version=", ".join(described),
        about=f"Apply {', '.join(part.name for part in ordered)} together, in this order.",
        options=_options(parts),
        moves_objects=any(part.moves_objects for part in parts),
        parts=ordered,
        severities_at=severities_at,
        record_severities=True,
    )


def _options(parts: Sequence[Shift]) -> dict[str, Any]:
    return {f"{part.name}.{key}": value for part in parts for key, value in part.options.items()}


def _not_alone(image: ImageF32, setting: Any, rng: np.random.Generator) -> ImageF32:
    raise SoritesError("a combination of shifts is applied with sweep_drawn")
