"""Match the columns of a prediction file with those of the table: by its own name, by an alias, or by a small TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError, UnknownName
from sorites.reading.texts import toml_file
from sorites.table import SCHEMA

FIELDS = tuple(name for name in SCHEMA if name != "run_id")
"""The columns of the table that a file may have; the id of a run is its own."""

PARTS = ("params.", "attrs.")
"""A column ``params.iso`` is one entry of ``params``, and ``attrs.weather`` one attribute."""

ALIASES: Mapping[str, tuple[str, ...]] = {
    "sample_id": ("sample", "id", "image", "img", "file", "file_name", "filename", "path", "image_path", "img_path", "img_dir"),
    "label": ("gt", "gt_class", "gt_label", "target", "ground_truth", "true_label", "true_class", "y_true", "class"),
    "pred": ("prediction", "pred_class", "pred_label", "predicted", "predicted_label", "predicted_class", "top1", "y_pred"),
    "conf": ("confidence", "prob", "probability", "max_prob"),
    "top5": ("top_5",),
    "correct": ("right", "is_correct"),
    "model": ("model_name", "arch", "architecture"),
    "shift": ("corruption", "nuisance"),
    "severity": ("scale",),
    "source": ("dataset",),
    "score": ("ood_score", "strangeness"),
    "scorer": ("postprocessor", "ood_method"),
    "attrs": ("attributes",),
}
"""Other names of the table's columns that are common in prediction files."""

HIGHER = ("stranger", "familiar")


@dataclass(frozen=True)
class Naming:
    """The columns as a user names them: ``columns`` maps the table's to the file's, ``constants`` are the same in every row.

    ``higher`` says what a high score means in the file; the table's scores are higher for stranger pictures.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    higher: str = "stranger"

    def with_constants(self, **more: str | None) -> Naming:
        """Return the same with further constants; None says nothing."""
        given = {name: value for name, value in more.items() if value is not None}
        twice = sorted(given.keys() & self.columns.keys())
        if twice:
            raise SoritesError(f"{twice[0]} is named by --{twice[0]} and by a column of --columns; leave one out")
        return Naming(self.columns, {**self.constants, **given}, self.higher)

    def of(self, present: Sequence[str], file: str, aliases: Mapping[str, tuple[str, ...]] = ALIASES) -> dict[str, str]:
        """Return the table's columns that a file with the columns ``present`` has, each with the file's own name for it."""
        for wanted in self.columns.values():
            if wanted not in present:
                raise UnknownName(f"column of {file}", wanted, present, f"It has {', '.join(present)}.")
        plain = {name.strip().lower(): name for name in reversed(present)}
        found = dict(self.columns)
        for name in dict.fromkeys([*FIELDS, *aliases]):
            if name in found or name in self.constants:
                continue
            if name in plain:
                found[name] = plain[name]
                continue
            several = [plain[alias] for alias in aliases.get(name, ()) if alias in plain and plain[alias] not in found.values()]
            if len(several) > 1:
                named = f'say which in a file for --columns: [columns] {name} = "{several[0]}"'
                raise SoritesError(f"{file}: {' and '.join(several)} could both be {name}; {named}")
            found |= {name: several[0]} if several else {}
        parts = {name: plain[name] for name in plain if name.startswith(PARTS) and name not in found}
        return found | {name: mine for name, mine in parts.items() if name not in self.constants}


def read_naming(path: str | Path | None) -> Naming:
    """Read the TOML file of ``--columns``: a table ``[columns]``, a table ``[constants]`` and ``higher``, all optional."""
    if path is None:
        return Naming()
    data = toml_file(Path(path), "--columns as a TOML file")
    keys = ("columns", "constants", "higher")
    for key in data:
        if key not in keys:
            raise UnknownName(f"key of {path}", key, keys, f"It may have {', '.join(keys)}.")
    columns, constants = (_table(data, key, path) for key in ("columns", "constants"))
    higher = data.get("higher", "stranger")
    if higher not in HIGHER:
        raise SoritesError(f"{path}: higher is one of {', '.join(HIGHER)}, got {higher!r}")
    wrong = next((name for name, mine in columns.items() if not isinstance(mine, str)), None)
    if wrong is not None:
        raise SoritesError(f'{path}: wanted [columns] as {wrong} = "the file\'s column", got {columns[wrong]!r}')
    twice = sorted(columns.keys() & constants.keys())
    if twice:
        raise SoritesError(f"{path}: {twice[0]} stands in [columns] and in [constants]; leave one out")
    return Naming(columns, constants, higher)


def _table(data: Mapping[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise SoritesError(f"{path}: wanted {key} as a table [{key}], got {found!r}")
    flat: dict[str, Any] = {}
    for name, value in found.items():
        inner = {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
        flat |= inner
    allowed = (*FIELDS, "n", "light", "param", "shot")
    for name in flat:
        if name not in allowed and not name.startswith(PARTS):
            raise UnknownName(f"column in [{key}] of {path}", name, FIELDS, f"The table's columns are {', '.join(FIELDS)}.")
    return flat
