"""Typed content of the JSON files of a run folder or dataset, and the run id.

``RunRecord`` is ``run.json``, ``DatasetRecord`` is ``sorites.json`` of a built dataset, ``ModelFit`` an entry
of ``fits/fitted.json``. Fields that were not set are not written, so that reading a file and writing it again
gives the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_serializer
from pydantic import Strict as StrictMode

from sorites.core import split_spec
from sorites.core.errors import Damaged, SoritesError
from sorites.core.rng import digest
from sorites.io.files import read_json, write_bytes
from sorites.io.validation import Record, problems
from sorites.suites.suite import STORED, Suite

# Keys of a suite that may differ between commands on the same run folder.
ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "lpips_measure", "similarity")
# Samples per unit of work, unless a plan would have too many units: few enough to resume and distribute,
# enough to batch.
SAMPLES_PER_UNIT = 16

Version = str | int
# JSON has lists, and strict models accept only tuples for tuples.
Texts = Annotated[tuple[str, ...], StrictMode(False)]
Integers = Annotated[tuple[int, ...], StrictMode(False)]
Numbers = Annotated[tuple[int | float, ...], StrictMode(False)]
# Severities, or named parameters where a shift has no severity.
Settings = Annotated[tuple[int | float | dict[str, Any], ...], StrictMode(False)]


R = TypeVar("R", bound=BaseModel)


def read_model(path: Path, kind: type[R], remedy: str) -> R:
    """Read a JSON file.

    Args:
        path: The file.
        kind: The model of its content.
        remedy: What to do if it is damaged.

    Raises:
        Damaged: It cannot be read, or a field is missing, unknown or of another type; the reason names the
            field.
    """
    try:
        content = read_json(path)
    except SoritesError as error:
        raise Damaged(path, error, remedy) from error
    return validated(content, path, kind, remedy)


def validated(content: object, path: Path, kind: type[R], remedy: str) -> R:
    """Return the content of a JSON file as a model.

    Raises:
        Damaged: A field is missing, unknown or of another type; the reason names the field.
    """
    try:
        return kind.model_validate(content, context=STORED)
    except ValidationError as error:
        raise Damaged(path, problems(error, kind)[0], remedy) from error


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write plain data as a JSON file, atomically."""
    write_bytes(json.dumps(content, indent=1).encode(), path)


def hash_of(identity: Mapping[str, Any]) -> str:
    """Return the run id of the data that determine results."""
    return digest(json.dumps(identity, sort_keys=True), size=8).hex()


# Parts of ``run.json``.


class DialRecord(Record):
    """A shift that samples define themselves."""

    levels: Numbers
    unit: str
    family: str
    version: Version


class Place(Record):
    """The path of a file that the suite names: relative to the run folder, and absolute."""

    beside: str | None = None
    absolute: str


class FirstPlaces(Record):
    """The specs of the sources when the run was created; the run id depends on them, even if images move."""

    source: str
    sources: Texts = ()
    fit: str | None = None

    def of(self, suite: Suite) -> Suite:
        """Return the suite with its sources at these places, as far as the readers are the same."""
        entries = [
            entry.model_copy(update={"spec": _same_reader(entry.spec, self.sources[i : i + 1])})
            for i, entry in enumerate(suite.sources)
        ]
        source = _same_reader(suite.source, (self.source,))
        changes: dict[str, Any] = {"source": source, "sources": tuple(entries)}
        if suite.fit is not None:
            training = _same_reader(suite.fit.source, () if self.fit is None else (self.fit,))
            changes["fit"] = suite.fit.model_copy(update={"source": training})
        return suite.model_copy(update=changes)


def _same_reader(spec: str, first: tuple[str, ...]) -> str:
    return first[0] if first and split_spec(first[0])[0] == split_spec(spec)[0] else spec


class RanOn(Record):
    """The machine on which some of the models ran; a run that is continued elsewhere has several entries.

    What affects results is also in ``computing``.
    """

    engine: str
    device: str
    precision: str
    batch: int
    models: Texts = ()
    library: str = ""
    """The library that computed: torch, onnxruntime; empty for other code."""
    hardware: dict[str, str] = {}
    """The name of a GPU, and the versions of its driver, CUDA and cuDNN."""
    options: dict[str, str] = {}
    """Settings of the library that were changed from its defaults."""


class Computing(Record):
    """Arithmetic of a model other than float32 with ONNX Runtime, or one image at a time on a CPU."""

    library: str
    device: str
    """The kind of device: cpu, cuda, mps."""
    precision: str
    batch: int | None
    """Images in each pass, if their number affects rounding."""
    tf32: bool


class AttackRecord(Record):
    """The settings of an attack."""

    norm: str
    eps: Numbers
    losses: Texts
    steps: int
    restarts: int
    version: int


class ImportRecord(Record):
    """The prediction files of an imported run; all but the number of rows determine its id."""

    kind: str = Field(validation_alias=AliasChoices("as", "kind"), serialization_alias="as")
    files: Annotated[tuple[Annotated[tuple[str, str], StrictMode(False)], ...], StrictMode(False)]
    """Name and content hash of each file."""
    columns: dict[str, str]
    constants: dict[str, Any]
    higher: str
    labels: str
    version: int
    rows: int = 0

    def identity(self) -> dict[str, Any]:
        """Return what determines the run id."""
        return {key: value for key, value in self.as_json().items() if key != "rows"}


class Causes(Record):
    """Everything that determines the results of a run or the images of a dataset."""

    run_id: str
    suite: Suite
    fit: str | None = None
    """Hash of the training images by id and label; the next two are of the validation images of a search."""
    validation: str | None = None
    ood: str | None = None
    search: dict[str, Texts] = {}
    """The candidates of each scorer whose parameters are searched."""
    labels: str = ""
    """Hash of the classes."""
    settings: dict[str, Settings]
    shifts: dict[str, Version] = {}
    dials: dict[str, DialRecord] = {}
    scorers: dict[str, Version] = {}
    models: dict[str, Version]
    versions: dict[str, Version] = {}
    """Versions of libraries."""
    confidence: Version | None = None
    """How the confidence of an answer is computed where several classes mean the same answer."""
    computing: dict[str, Computing] = {}
    """By model, unless a change of batch size changes no row and a CPU computes in float32."""

    @field_serializer("suite")
    def _whole_suite(self, suite: Suite) -> dict[str, Any]:
        # Defaults are written too, so that a run keeps them if a later version has others.
        return suite.model_dump(mode="json")

    def identity(self) -> dict[str, Any]:
        """Return what determines the run id.

        Of the suite, these are the keys that are not at their default, so that new keys change no id. The
        version of this package is not included.
        """
        suite = self.suite.model_dump(mode="json", exclude=set(ASIDE), exclude_defaults=True)
        if suite.get("device") != "cpu":
            suite.pop("device", None)  # which GPU was asked for changes no row; its kind is in ``computing``
        typed = {"name": self.suite.name, "source": self.suite.source}
        return {**self._part(set(Causes.model_fields) - {"run_id"}), "suite": {**suite, **typed}}

    def _part(self, names: set[str]) -> dict[str, Any]:
        return {key: value for key, value in self.as_json().items() if key in names}

    def identified(self) -> Self:
        """Return the record with the run id that follows from it."""
        return self.having(run_id=hash_of(self.identity()))

    def compared(self) -> dict[str, Any]:
        """Return what two records are compared by; defaults of the suite are included for readability."""
        data = self._part({*Causes.model_fields, "attack", "imported"} - {"run_id"})
        return {**data, "suite": {key: value for key, value in data["suite"].items() if key not in ASIDE}}


class DatasetRecord(Causes):
    """Content of ``sorites.json``: what the images of a built dataset follow from."""

    quality: int | None = None
    """JPEG quality; None for PNG."""
    files: dict[str, str] = {}
    """Digests of the other files that are no images; not set until the dataset is finished."""

    def as_run(self) -> RunRecord:
        """Return the record of a run of the same plan."""
        return RunRecord(
            **{name: getattr(self, name) for name in self.model_fields_set - {"quality", "files"}}
        )


class RunRecord(Causes):
    """Content of ``run.json``: what the numbers of a run follow from, and descriptive fields."""

    imported: ImportRecord | None = None
    ran_on: Annotated[tuple[RanOn, ...], StrictMode(False)] = ()
    attack: AttackRecord | None = None
    parameters: dict[str, int | None] = {}
    answers: dict[str, int] = {}
    """The number of classes that each model can answer."""
    places: dict[str, Place] = {}
    """The files that the suite names, by path as typed."""
    classes: Texts = ()
    """The classes, if the suite names a file of them."""
    inputs: dict[str, dict[str, Any]] = {}
    """The preprocessing of each model."""
    not_repeating: Texts = ()
    """Models that gave different outputs for the same image."""
    slice: int = Field(default=SAMPLES_PER_UNIT, gt=0)
    """Samples per unit of work."""
    groups: Annotated[tuple[Texts, ...], StrictMode(False)] = ()
    """Groups of models whose rows share shards, besides all models together."""
    limited: dict[str, Integers] = {}
    """By source: how many samples a limit took, and of how many."""
    scored: Texts = ()
    """Scorers that were added later."""
    first_places: FirstPlaces | None = None
    files: dict[str, Texts] = {}
    """Accepted digests of the files that are not shards, by path relative to the folder (see
    ``io.listed``)."""

    @property
    def batch(self) -> int | None:
        """The batch size that rows depend on; None if they do not."""
        return next((how.batch for how in self.computing.values() if how.batch is not None), None)

    def first(self) -> FirstPlaces:
        """Return the specs of the sources when the run was created."""
        if self.first_places is not None:
            return self.first_places
        specs = tuple(entry.spec for entry in self.suite.sources)
        training = self.suite.fit.source if self.suite.fit else None
        return FirstPlaces(source=self.suite.source, sources=specs, fit=training)

    def scorer_names(self) -> tuple[str, ...]:
        """Return the scorers of the run, including those added later."""
        return tuple(dict.fromkeys([*(self.scorers or self.suite.scorers), *self.scored]))


def same_run(before: Causes, now: Causes) -> bool:
    """Return whether two records are of the same run; its images may have moved since ``before``."""
    if before.run_id == now.run_id or not isinstance(before, RunRecord):
        return before.run_id == now.run_id
    return before.run_id == now.having(suite=before.first().of(now.suite)).identified().run_id


def difference(before: Causes, now: Causes) -> str:
    """Describe the models whose versions differ, or else the first field that differs, with both values."""
    changed = [
        f"{name}: version {str(version)[:12]} there, {str(now.models[name])[:12]} here"
        for name, version in before.models.items()
        if name in now.models and now.models[name] != version
    ]
    if changed:
        return f"the models have changed (weights, files or outputs): {'; '.join(changed)}"
    return first_difference(before.compared(), now.compared())


def first_difference(there: Any, here: Any, where: str = "") -> str:
    """Describe the first key, in alphabetical order, whose value differs, with both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here}):
            if there.get(key) != here.get(key):
                return first_difference(there.get(key), here.get(key), f"{where}.{key}".strip("."))
    return f"{where}: {json.dumps(there)} there, {json.dumps(here)} here"


# ``fits/fitted.json``, by model.


class Candidate(Record):
    """Parameters that a search tried: their AUROC on the validation images, or why they were left out."""

    params: dict[str, Any]
    auroc: float | None = None
    left_out: str | None = None


class SearchResult(Record):
    """The parameters that a search chose for a scorer, and all that it tried."""

    chosen: dict[str, Any]
    auroc: float | None = None
    tried: Annotated[tuple[Candidate, ...], StrictMode(False)] = ()


class ModelFit(Record):
    """The training images on which the scorers of one model were fitted.

    ``wrong`` counts the training images that were skipped because the model misclassifies them, ``left_out``
    those that were skipped for other reasons.
    """

    left_out: int = 0
    wrong: int = 0
    scorers: dict[str, Any] = {}
    notes: dict[str, str] = {}
    search: dict[str, SearchResult] = {}

    def chosen(self) -> dict[str, dict[str, Any]]:
        """Return the parameters that searches chose, by scorer."""
        return {scorer: search.chosen for scorer, search in self.search.items()}
