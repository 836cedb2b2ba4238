"""Recompute a passport or a comparison from its run folders (``sorites.verify``)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sorites import __version__
from sorites.analysis.comparison.compare import compare, runs_of
from sorites.analysis.comparison.document import ComparisonDocument, comparison_document, hashed
from sorites.analysis.comparison.gate import judge
from sorites.analysis.passport.battery import NAMES, load_battery, run_folders
from sorites.analysis.passport.document import NAME, AnyPassport, BoxPassport, read_passport
from sorites.core.errors import Damaged, InvalidOption, MissingFile, SoritesError
from sorites.core.messages import option
from sorites.evaluation.integrity.evidence import RunEvidence, changed, run_evidence
from sorites.io.digests import digest_of
from sorites.io.paths import is_dir, is_file
from sorites.io.readers import json_value, text
from sorites.reports.page import DATA
from sorites.reports.passport.box_numbers import box_document
from sorites.reports.passport.numbers import document

# Numbers that differ by less than this are equal: documents are rounded to ten decimals.
TOLERANCE = 1e-9
_DATA = re.compile(rf'<script type="application/json" id="{DATA}">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Verification:
    """The result of verifying a document; true in a condition if the document follows from its run folders.

    Attributes:
        file: The document.
        runs: The number of runs that were read.
        numbers: The number of values that were recomputed.
        differences: What differs, one phrase each: changed files and changed numbers.
        written_by: The version of Sorites that wrote the document.
    """

    file: Path
    runs: int
    numbers: int
    differences: tuple[str, ...]
    written_by: str

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if not self.differences:
            other = f", written by Sorites {self.written_by}" if self.written_by != __version__ else ""
            count = f"{self.numbers} values recomputed from {self.runs} run{'s' if self.runs > 1 else ''}"
            return f"{self.file} follows from its folders: {count}{other}"
        more = f"; and {len(self.differences) - 3} more" if len(self.differences) > 3 else ""
        return f"{self.file} does not follow from its folders: {'; '.join(self.differences[:3])}{more}"


def verify(file: str | Path, folders: Sequence[str | Path] = ()) -> Verification:
    """Recompute a passport or a comparison from its run folders.

    Args:
        file: A passport (passport.json or its folder), or the page of a comparison.
        folders: Where the folders are now, if they have moved: that of the passport, or BASE and NEW of the
            comparison.

    Returns:
        Whether the document follows from the folders, and what differs.

    Raises:
        SoritesError: This cannot be checked: the file is no such document, or a folder is missing.
    """
    path, places = Path(file), [Path(folder) for folder in folders]
    path = path / NAME if is_dir(path) else path
    if not is_file(path):
        raise MissingFile(path, f"there is no document {path}")
    try:
        return _verify_passport(path, places) if path.name == NAME else _verify_page(path, places)
    except Damaged as error:
        return Verification(path, 0, 0, (f"{error.fields['path']}: {error.fields['reason']}",), __version__)


def _verify_passport(path: Path, places: Sequence[Path]) -> Verification:
    then = read_passport(path.parent)
    if len(places) > 1:
        raise InvalidOption("folders", f"{option('folders', None)}: a passport has one folder")
    runs = run_folders(places[0] if places else path.parent, [run.part for run in then.runs])
    found = [*_changed_files(then.evidence, runs), *_other_battery(then)]

    def numbers(passport: AnyPassport) -> dict[str, Any]:
        return passport.model_dump(mode="json", exclude={"sorites", "hash", "evidence"})

    def recompute() -> dict[str, Any]:
        sources = {run.part: run.source for run in then.runs}
        compute = box_document if isinstance(then, BoxPassport) else document
        return numbers(compute(then.battery, runs, then.left_out, sources))

    return _verification(path, len(runs), found, numbers(then), recompute, then.sorites)


def _other_battery(passport: AnyPassport) -> list[str]:
    """Return a difference if the passport claims a built-in battery of this version that is another."""
    battery = passport.battery
    if battery.name not in NAMES or load_battery(battery.name).version != battery.version:
        return []
    same = load_battery(battery.name).digest() == battery.digest
    return [] if same else [f"the battery {battery.name} {battery.version} has another digest"]


def _verify_page(path: Path, places: Sequence[Path]) -> Verification:
    then = _read_page(path)
    if places and len(places) != 2:
        raise InvalidOption("folders", f"{option('folders', None)}: expected BASE and NEW, got {len(places)}")
    base, new = places or (path.parent / then.base.path, path.parent / then.new.path)
    found = [
        *_changed_files(then.base.runs, runs_of(base)),
        *_changed_files(then.new.runs, runs_of(new)),
    ]

    def recompute() -> dict[str, Any]:
        comparison = compare(
            base,
            new,
            base_model=then.base.model,
            model=then.new.model,
            shared=then.shared,
            other_versions=then.other_versions,
            conf=then.conf,
            rate=then.rate,
        )
        verdicts = judge(comparison, then.gate) if then.gate is not None else []
        return comparison_document(comparison, verdicts, then.gate, path.parent, then.page).numbers()

    runs = len(then.base.runs) + len(then.new.runs)
    return _verification(path, runs, found, then.numbers(), recompute, then.sorites)


def _read_page(path: Path) -> ComparisonDocument:
    """Read the document that the page of a comparison contains.

    Raises:
        Damaged: It was changed.
        SoritesError: The page contains none.
    """
    match = _DATA.search(text(path, "the page of a comparison, or passport.json"))
    if match is None:
        raise SoritesError(
            f"{path} contains no document that can be verified. Expected {NAME}, or the page of a comparison"
        )
    remedy = "Compare the runs again."
    try:
        found = ComparisonDocument.model_validate(json_value(match[1]))
    except (ValueError, ValidationError) as error:
        raise Damaged(path, f"its document is not valid: {str(error).splitlines()[0]}", remedy) from error
    if found.hash != hashed(found).hash:
        raise Damaged(path, "its document was changed after it was written: its hash differs", remedy)
    if digest_of(path.read_bytes().replace(match[0].encode(), b"", 1)) != found.page:
        raise Damaged(path, "the page was changed after it was written, but not its document", remedy)
    return found


def _changed_files(then: Sequence[RunEvidence], folders: Mapping[str, Path]) -> Iterator[str]:
    """Yield the files that changed since the document was written.

    Raises:
        MissingFile: A run folder does not exist.
    """
    for run in then:
        folder = folders.get(run.part)
        if folder is None or not is_dir(folder):
            moved = f"If it has moved, pass {option('folders', ['DIR'])}."
            raise MissingFile(folder, f"the run {folder or run.part} does not exist. {moved}")
        for name in changed(run, run_evidence(run.part, folder)):
            yield f"{folder / name} has changed" if name in run.files else f"{name} in {folder} changed"


def _verification(
    path: Path,
    runs: int,
    found: Sequence[str],
    then: dict[str, Any],
    recompute: Callable[[], dict[str, Any]],
    written_by: str,
) -> Verification:
    try:
        differences = [*_differences(then, recompute())]
    except SoritesError as error:
        if not found or isinstance(error, Damaged):
            raise
        differences = [f"it cannot be recomputed: {error}"]
    return Verification(path, runs, _count(then), (*found, *differences), written_by)


def _differences(then: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield the values that differ, each with its place in the document."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            yield from _differences(then.get(key), now.get(key), f"{where}.{key}".strip("."))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for i, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{_name(one, i)}]")
    elif not _equal(then, now):
        yield f"{where} is {json.dumps(then)[:80]} there and {json.dumps(now)[:80]} recomputed"


def _name(entry: Any, number: int) -> str:
    """Return the name of an entry of a list: its shift or part, or else its number."""
    named = entry if isinstance(entry, dict) else {}
    return str(named.get("shift") or named.get("dial") or named.get("part") or number)


def _equal(then: Any, now: Any) -> bool:
    if isinstance(then, float | int) and isinstance(now, float | int):
        return math.isclose(then, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(then == now)


def _count(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if parts is None else sum(map(_count, parts))
