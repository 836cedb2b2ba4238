"""Names of what differs between runs: versions of a model, and conditions of a shift with other kernels,
options or versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sorites.evaluation.storage.schema import RunRecord
from sorites.suites.suite import Suite

V = TypeVar("V")

# Minimum number of characters shown of a version; more if two versions have the same prefix.
MIN_VERSION_LENGTH = 6


def short_version(version: str, others: Sequence[str] = ()) -> str:
    """Return the shortest prefix of a version that differs from others, or "no version"."""
    length = next(
        (
            n
            for n in range(MIN_VERSION_LENGTH, len(version))
            if all(other[:n] != version[:n] for other in others)
        ),
        len(version),
    )
    return version[:length] or "no version"


def with_names(by_model: Mapping[str, V], names: Mapping[str, str]) -> dict[str, V]:
    """Return values by model with models renamed."""
    return {names.get(name, name): value for name, value in by_model.items()}


# One shift with different kernels, options or versions: several conditions.


def distinct_conditions(records: Sequence[RunRecord | None]) -> list[dict[str, str]]:
    """Return, for each run, new names for the shifts that make other images in another run.

    The same shift with other options (such as kernels) or of another version is another condition:
    ``coma`` becomes ``coma (kernels=stack.pt)`` and ``coma (defaults)``. Only named settings that no two runs
    have in common stay together, for example the lenses of two folders.
    """
    names: list[dict[str, str]] = [{} for _ in records]
    known = [(number, record) for number, record in enumerate(records) if record is not None]
    for shift in dict.fromkeys(name for _, record in known for name in record.shifts):
        users = [(number, record) for number, record in known if shift in record.shifts]
        variants = {number: _variant(record, shift) for number, record in users}
        if len(set(variants.values())) > 1 and _one_curve(shift, [record for _, record in users]):
            labels = _variant_labels(list(dict.fromkeys(variants.values())))
            for number, variant in variants.items():
                names[number][shift] = f"{shift} ({labels[variant]})"
    return names


def base_shift(name: str) -> str:
    """Return the registered name of a shift that ``distinct_conditions`` may have renamed."""
    return name.partition(" (")[0]


# A shift's version, and its options as JSON.
Variant = tuple[str, str]


def _variant(record: RunRecord, shift: str) -> Variant:
    return str(record.shifts[shift]), json.dumps(
        shift_options(record.suite, shift), sort_keys=True, default=str
    )


def _one_curve(shift: str, users: Sequence[RunRecord]) -> bool:
    """Return whether rows of several runs would be pooled at a setting, or joined into one curve."""
    settings = [setting for record in users for setting in record.settings.get(shift, ())]
    if all(isinstance(setting, int | float) for setting in settings):
        return True
    seen: set[str] = set()
    for record in users:
        own = {json.dumps(setting, sort_keys=True) for setting in record.settings.get(shift, ())}
        if seen & own:
            return True
        seen |= own
    return False


def _variant_labels(variants: Sequence[Variant]) -> dict[Variant, str]:
    """Name variants by the options that differ, and by their versions where options do not tell them
    apart.
    """
    options = {variant: json.loads(variant[1]) for variant in variants}
    keys = [
        key
        for key in sorted({key for own in options.values() for key in own})
        if len({json.dumps(own.get(key)) for own in options.values()}) > 1
    ]
    labels = {
        variant: ", ".join(f"{key}={_short(own[key])}" for key in keys if key in own) or "defaults"
        for variant, own in options.items()
    }
    for variant in variants:
        others = [other for other in variants if other != variant]
        if any(labels[other] == labels[variant] for other in others):
            version = f"version {short_version(variant[0], [version for version, _ in others])}"
            labels = {**labels, variant: f"{labels[variant]}, {version}" if keys else version}
    return labels


def _short(value: object) -> str:
    """Return an option as text; a path by its last part."""
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def apart_notes(names: Sequence[Mapping[str, str]]) -> list[str]:
    """Describe the shifts that are kept apart under several names."""
    new: dict[str, list[str]] = {}
    for own in names:
        for shift, name in own.items():
            new.setdefault(shift, []).append(name)
    return [
        f"{shift} is not the same in all runs and is kept apart as {' and '.join(dict.fromkeys(conditions))}."
        for shift, conditions in new.items()
    ]


def with_conditions(record: RunRecord | None, names: Mapping[str, str]) -> RunRecord | None:
    """Return a record with shifts renamed."""
    if record is None or not names:
        return record
    dials = tuple(
        dial.model_copy(update={"name": names.get(dial.name, dial.name)}) for dial in record.suite.shifts
    )
    return record.having(
        suite=record.suite.model_copy(update={"shifts": dials}),
        shifts=with_names(record.shifts, names),
        settings=with_names(record.settings, names),
    )


def shift_options(suite: Suite, shift: str) -> object:
    """Return the options of a shift in a suite."""
    return next((dial.options for dial in suite.dials if dial.name == shift), {})
