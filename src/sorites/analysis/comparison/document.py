"""The comparison as data: a document with its numbers and what they rest on, embedded in its page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sorites import __version__
from sorites.analysis.comparison.compare import Comparison
from sorites.analysis.comparison.detectors import BoxComparison
from sorites.analysis.comparison.gate import Gate
from sorites.analysis.comparison.pairs import Side
from sorites.analysis.comparison.verdicts import Verdict
from sorites.analysis.passport.document import Strict, content_hash, rounded
from sorites.core.messages import in_shell
from sorites.evaluation.integrity.evidence import RunEvidence, run_evidence
from sorites.io.stores import to_path


class ComparedSide(Strict):
    """One of the two models, and the runs that evaluated it."""

    path: str
    """Run folder or passport, relative to the folder of the document."""
    model: str
    """Its name."""
    version: str
    """Its version, a hash of weights and preprocessing."""
    runs: tuple[RunEvidence, ...]
    """The runs of its numbers, with the digests of their files."""


class ComparisonDocument(Strict):
    """The whole document."""

    schema_name: Literal["sorites-comparison"] = Field(default="sorites-comparison", alias="schema")
    """The kind of the document."""
    schema_version: Literal[1] = 1
    """The version of this schema."""
    sorites: str
    """The version of Sorites that wrote it."""
    base: ComparedSide
    """The model that is compared with."""
    new: ComparedSide
    """The model that is judged."""
    shared: bool
    """True if only images with predictions of both models were compared."""
    other_versions: bool
    """True if different versions of the libraries that make images were allowed."""
    rate: float
    """The rate at which two equal models raise a false alarm on any shift."""
    conf: float | None = None
    """For detectors, the confidence from which a box finds an object."""
    gate: Gate | None
    """The rules, if there are any."""
    notes: tuple[str, ...]
    """The notes that were printed beside the numbers."""
    dials: tuple[dict[str, Any], ...]
    """One row per shift, as in ``Comparison.dials``."""
    settings: tuple[dict[str, Any], ...]
    """One row per setting, as in ``Comparison.settings``."""
    checks: tuple[dict[str, Any], ...]
    """The results of the gate."""
    page: str
    """The digest of the page that shows the document, without the document itself."""
    hash: str = ""
    """Hash of all the above."""

    def numbers(self) -> dict[str, Any]:
        """Return what is computed from the runs, without the notes, which name folders."""
        return self.model_dump(mode="json", include={"dials", "settings", "checks"})


def comparison_document(
    comparison: Comparison | BoxComparison,
    verdicts: Sequence[Verdict],
    gate: Gate | None,
    beside: Path,
    page: str,
) -> ComparisonDocument:
    """Return the document of a comparison.

    Args:
        comparison: The comparison.
        verdicts: The results of its gate.
        gate: The rules, if there are any.
        beside: The folder of the document, to which the paths of the runs are relative.
        page: The digest of the page without the document.
    """
    document = ComparisonDocument(
        schema="sorites-comparison",
        sorites=__version__,
        base=_side(comparison.base, beside),
        new=_side(comparison.new, beside),
        shared=comparison.shared,
        other_versions=comparison.other_versions,
        rate=comparison.rate,
        conf=comparison.conf if isinstance(comparison, BoxComparison) else None,
        gate=gate,
        notes=tuple(map(in_shell, comparison.notes)),
        dials=tuple(comparison.dials.to_dicts()),
        settings=tuple(comparison.settings.to_dicts()),
        checks=tuple(_check(verdict) for verdict in verdicts),
        page=page,
    )
    return hashed(document)


def hashed(document: ComparisonDocument) -> ComparisonDocument:
    """Return the document with rounded numbers and the hash of its content."""
    content = rounded(document.model_dump(mode="json", by_alias=True, exclude={"hash"}))
    return ComparisonDocument.model_validate({**content, "hash": content_hash(content)})


def _side(side: Side, beside: Path) -> ComparedSide:
    runs = tuple(run_evidence(part, to_path(folder.name)) for part, folder in side.parts.items())
    path = _relative(side.path, beside)
    return ComparedSide(path=path, model=side.model, version=side.version, runs=runs)


def _relative(path: Path, beside: Path) -> str:
    return Path(os.path.relpath(path.resolve(), beside.resolve())).as_posix()


def _check(verdict: Verdict) -> dict[str, Any]:
    names = ("dial", "value", "bound", "limit", "p", "detectable", "n", "outcome")
    return {"rule": verdict.rule.text, **{name: getattr(verdict, name) for name in names}}
