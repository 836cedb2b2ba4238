"""The samples of a suite by shift: one that the source brings captured is taken as captured, one that samples have as a dial of
their own from those samples, and any other is made from the clean samples."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from sorites.core import CLEAN, SHIFTS, Image, OwnDial, Sample, Shift, Stop
from sorites.errors import SoritesError, UnknownName
from sorites.frame import Dial
from sorites.pipeline.samples import unique
from sorites.suite import Suite
from sorites.types.packed import PackedSamples, seen


@dataclass(frozen=True)
class Groups:
    """The samples of each shift, and the stops of the shifts that are dials or grids here."""

    samples: dict[str, PackedSamples] = field(default_factory=dict)
    shifts: dict[str, Shift] = field(default_factory=dict)
    stops: dict[str, tuple[Stop, ...]] = field(default_factory=dict)
    own: dict[str, OwnDial] = field(default_factory=dict)
    """The dials that samples have themselves, as the first of them has each."""


def grouped(suite: Suite, source: str, samples: Sequence[Sample]) -> Groups:
    """Group the samples of a suite by shift. A suite without shifts takes everything that its source brings."""
    captured = by_shift(samples)
    unique(samples)
    own = own_dials(samples)
    for name in own.keys() & captured.keys():
        raise SoritesError(f"the source {source} holds {name} twice: as captured pictures and as a dial of its samples")
    found = Groups({CLEAN: captured[CLEAN]} if suite.shifts else dict(captured))
    for dial in suite.shifts or tuple(Dial(name=name) for name in own):
        if dial.name in captured:
            found.samples[dial.name] = captured[dial.name].where(functools.partial(_at_stop, dial))
            if captured[dial.name] and not found.samples[dial.name]:
                raise SoritesError(f"the source {source} holds {dial.name}, but not at the levels, severities or settings asked")
        elif dial.name in own:
            found.own[dial.name] = own[dial.name]
            found.samples[dial.name] = captured[CLEAN].where(functools.partial(_has, dial.name))
            found.shifts[dial.name] = shift_of(own[dial.name], dial)
            found.stops[dial.name] = dial.stops(found.shifts[dial.name], foresee=False)
        elif own and dial.name not in SHIFTS.names():
            raise UnknownName("shift", dial.name, [*own, *SHIFTS.names()], f"The samples of {source} have {', '.join(own)}.")
        else:
            found.samples[dial.name] = captured[CLEAN]
            found.shifts[dial.name] = dial.shift()
            found.stops[dial.name] = dial.stops()
    return found


def by_shift(samples: Sequence[Sample]) -> dict[str, PackedSamples]:
    """Return the samples of each shift that a source brings, the clean ones first, be there any or not."""
    held = seen(samples)
    if held.plain():
        return {CLEAN: held}
    places: dict[str, list[int]] = {CLEAN: []}
    for place, sample in enumerate(held):
        places.setdefault(sample.shift, []).append(place)
    return {shift: held.take(some) for shift, some in places.items()}


def own_dials(samples: Sequence[Sample]) -> dict[str, OwnDial]:
    """Return the dials that samples have, by name, as the first of them has each; one that another has otherwise is an error."""
    found: dict[str, tuple[OwnDial, Sample]] = {}
    for sample in () if (held := seen(samples)).plain() else held:
        for dial in sample.dials:
            first, whose = found.setdefault(dial.name, (dial, sample))
            for key, value in dial.shared.items():
                if value != first.shared[key]:
                    raise SoritesError(
                        f"the dial {dial.name} is not the same for all samples: its {key} is {first.shared[key]!r} for "
                        f"{whose.id} and {value!r} for {sample.id}. Give one of them another name."
                    )
    return {name: dial for name, (dial, _) in found.items()}


def shift_of(own: OwnDial, asked: Dial | None = None) -> Shift:
    """Return a dial that samples have as the shift that a plan lists: its pictures come from the samples alone."""
    if asked is not None and asked.options:
        raise SoritesError(
            f"{own.name} is a dial that samples have themselves: it has no options, got {', '.join(asked.options)}"
        )

    def apply(image: Image, severity: float, rng: object) -> Image:
        raise SoritesError(f"{own.name} is a dial of the samples' own: it moves no other picture")

    return Shift(own.name, apply, own.family, own.unit, own.levels, version=own.version, about=own.about, moves_things=True)


def _has(dial: str, sample: Sample) -> bool:
    return sample.dial(dial) is not None


def _at_stop(dial: Dial, sample: Sample) -> bool:
    setting = sample.setting
    at_level = not dial.levels or setting.level in dial.levels
    at_severity = not dial.severities or setting.severity in dial.severities
    return (
        at_level
        and at_severity
        and (not dial.settings or any(part.items() <= dict(setting.params).items() for part in dial.settings))
    )
