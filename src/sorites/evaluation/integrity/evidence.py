"""Evidence of a document: the digests of the files of the runs that its numbers follow from."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import Field

from sorites.core.table import repair, shard_files
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.io.digests import Verifier, digest_in, digest_of, digest_of_file, stem_of
from sorites.io.files import local_copies
from sorites.io.listed import RUN, existing
from sorites.io.validation import Record

# A document lists the files of a run up to this number, so that a changed one can be named.
MAX_LISTED = 2_000


class RunEvidence(Record):
    """The run of a part of a document."""

    part: str
    run_id: str
    """Empty if the folder has no ``run.json``."""
    digest: str
    """The digest of all entries of ``evidence``."""
    files: dict[str, str] = Field(default={})
    """These entries; empty if there are too many."""


def evidence(folder: Path) -> dict[str, str]:
    """Return the digests of the files that the table of a run follows from: predictions, and listed facts.

    Of ``run.json``, these are the fields that determine results. A prediction file whose name ends with a
    digest has the name without it.

    Args:
        folder: The run folder.

    Returns:
        Digests by path in the folder.

    Raises:
        SoritesError: ``run.json`` is damaged, or a file cannot be read.
    """
    record = read_record(folder) if (folder / RUN).exists() else None
    shards = {f"predictions/{stem_of(path.name) or path.name}": path for path in shard_files(folder)}
    listed = existing(folder / RUN, "facts/*.parquet", Verifier(folder), repair(folder))
    facts = {f"facts/{path.name}": path for path in listed}
    unnamed = [path for path in [*shards.values(), *facts.values()] if digest_in(path.name) is None]
    local = dict(zip(unnamed, local_copies(unnamed), strict=True))
    digests = {
        name: digest_in(path.name) or digest_of_file(local[path])
        for name, path in sorted({**shards, **facts}.items())
    }
    return digests if record is None else {RUN: _causes(record), **digests}


def _causes(record: RunRecord) -> str:
    causes = {"run_id": record.run_id, **record.identity()}
    return digest_of(json.dumps(causes, sort_keys=True).encode())


def run_evidence(part: str, folder: Path) -> RunEvidence:
    """Return the evidence of a run as a document lists it."""
    files = evidence(folder)
    run_id = read_record(folder).run_id if (folder / RUN).exists() else ""
    together = digest_of(json.dumps(files, sort_keys=True).encode())
    return RunEvidence(
        part=part, run_id=run_id, digest=together, files=files if len(files) <= MAX_LISTED else {}
    )


def changed(then: RunEvidence, now: RunEvidence) -> list[str]:
    """Return the files of a run that changed since a document was written, or a phrase for all of them."""
    if then.digest == now.digest:
        return []
    names = sorted({*then.files, *now.files} if then.files and now.files else ())
    return [name for name in names if then.files.get(name) != now.files.get(name)] or ["the files of the run"]
