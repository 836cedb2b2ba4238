"""Check once, when it is read, what ``run.json`` must hold: a field of another type is an error that names it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites.errors import SoritesError

Version = str | int


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Dial(_Part):
    name: str


class _Source(_Part):
    name: str
    spec: str


class _Suite(_Part):
    """The keys of the suite that are read without making a plan; ``suite.parse`` checks all of them where one is made."""

    name: str
    source: str
    sources: list[_Source] = []
    labels: str | list[str] = "imagenet"
    models: list[str] = []
    shifts: list[str | _Dial] = []
    scorers: list[str] = []
    refine: float | None = None
    reference: str | None = None


class _OwnDial(_Part):
    levels: list[float]
    unit: str
    family: str
    version: Version


class _Imported(_Part):
    kind: str = Field(alias="as")
    rows: int
    files: list[Any] = []


class _Run(_Part):
    run_id: str
    suite: _Suite
    stops: dict[str, list[float | dict[str, Any]]]
    models: dict[str, Version]
    labels: str = ""
    shifts: dict[str, Version] = {}
    dials: dict[str, _OwnDial] = {}
    scorers: dict[str, Version] = {}
    versions: dict[str, Version] = {}
    parameters: dict[str, int | None] = {}
    inputs: dict[str, dict[str, Any]] = {}
    scored: list[str] = []
    imported: _Imported | None = None
    classes: list[str] = []
    slice: int = Field(default=16, gt=0)
    places: dict[str, dict[str, str]] = {}


def checked_info(data: Any) -> dict[str, Any]:
    """Return the content of a ``run.json`` if it is what a run writes; an error names the first field that is not."""
    try:
        _Run.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "all of it"
        came = "" if isinstance(first["input"], (dict, list)) else f" (got {first['input']!r:.80})"
        raise SoritesError(f"it is not what a run writes: {field}: {first['msg']}{came}") from error
    return dict(data)
