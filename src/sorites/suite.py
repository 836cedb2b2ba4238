"""A suite: a named recipe in TOML, read and checked before anything runs. Data only, no logic."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictInt, ValidationError, field_validator, model_validator

from sorites import core
from sorites.errors import SoritesError, UnknownName
from sorites.frame import Dial, Distance, Fit, Frame, SourceEntry, Strict
from sorites.reading.mistakes import mistakes
from sorites.reading.texts import toml_file, toml_table
from sorites.types.specs import model_entry

LpipsMeasure = Literal["lpips", "lpips_linear"]
"""The measures by which settings can be set aside."""


class Suite(Strict):
    """A recipe: which pictures are moved by which shifts, shown to which models, and scored by which scorers."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    about: str = ""
    source: str = "stamps"
    source_name: str | None = None
    """The name of the first source in the table; without one, that of its reader."""
    sources: tuple[SourceEntry, ...] = ()
    """Further sources. Where a suite names all of its sources here, the first of them is taken as ``source``."""
    labels: str | tuple[str, ...] = "imagenet"
    frame: Frame | None = None
    frames: dict[str, Frame] = Field(default_factory=dict)
    """Frames by the name of a captured shift, for sets that their authors framed in another way."""
    models: tuple[str, ...] = ()
    """Specs, with the name of each in the table before it where it has one: ``"v2=onnx:PATH"``; a table
    ``{name = "v2", spec = "onnx:PATH"}`` is turned into that."""
    shifts: tuple[Dial, ...] = ()
    """Empty: whatever the source holds, as captured."""
    scorers: tuple[str, ...] = ()
    """Names, with the parameters that are not the default: ``"knn"``, ``"knn(k=10)"``; a table ``{name = "knn", k = 10}`` is
    turned into that."""
    scorers_if_fitted: tuple[str, ...] = ()
    """Scorers that join where the suite has training pictures (``fit``), and are left out with a note where it has none."""
    fit: Fit | None = None
    reference: str | None = None
    """The model that corruption errors are relative to, or a CSV file with the errors of one (shift, severity, error)."""
    refine: float | None = Field(default=None, gt=0, lt=1)
    """Bisect failure points to this fraction of the top level."""
    lpips_below: float | None = Field(default=None, gt=0)
    """Set aside the settings whose mean LPIPS against the clean pictures is not below this."""
    lpips_measure: LpipsMeasure = "lpips"
    """The measure that ``lpips_below`` goes by: on framed pictures, or as ImageNet-ES took it."""
    similarity: tuple[str, ...] = ()
    """Measures of every shifted picture against its clean one, taken when the run is done: ``["ssim"]``."""
    limit: StrictInt | None = Field(default=None, gt=0)
    order: Literal["shards"] | None = None
    """``shards`` takes the shards of a source in the order of a hash and their samples as they lie, and reads no more of them
    than the limit needs; without it any prefix is a fair sample of all samples."""
    device: str | None = Field(default=None, pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    """The device on which torch and ONNX models compute; the default is a GPU where there is one."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = None
    """The numbers that torch models compute with; without it float32."""
    distance: Distance | None = None
    """The recipe for the distance of every picture from familiar ones, with levels, measured when the run is done."""
    seed: StrictInt = Field(default=0, ge=-(2**63), lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _plain_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("shifts"), (list, tuple)):
            data = {**data, "shifts": [{"name": s} if isinstance(s, str) else s for s in data["shifts"]]}
        for key in ("scorers", "scorers_if_fitted"):
            if isinstance(data, dict) and isinstance(data.get(key), (list, tuple)):
                data = {**data, key: [_scorer_name(s) for s in data[key]]}
        if isinstance(data, dict) and isinstance(data.get("models"), (list, tuple)):
            data = {**data, "models": [model_entry(model) for model in data["models"]]}
        return _first_source(data)

    @field_validator("labels", mode="before")
    @classmethod
    def _names(cls, labels: Any) -> Any:
        if not isinstance(labels, str | list | tuple):
            raise ValueError('wanted "imagenet", "coco", a text file or a list of class names')
        return labels

    @field_validator("similarity")
    @classmethod
    def _measures(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(core.measure(name).name for name in names))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models in the table."""
        return tuple(core.named_spec(model)[0] for model in self.models)

    @model_validator(mode="after")
    def _once_each(self) -> Suite:
        sources = [self.source_name or core.split_spec(self.source)[0], *(entry.name for entry in self.sources)]
        dials, scorers = [dial.name for dial in self.shifts], (*self.scorers, *self.scorers_if_fitted)
        for kind, names in (("model", self.model_names), ("shift", dials), ("scorer", scorers), ("source", sources)):
            twice = {n for n in names if list(names).count(n) > 1}
            if twice:
                raise ValueError(f"{kind} {sorted(twice)[0]!r} stands twice")
        return self

    def override(
        self,
        *,
        shifts: Sequence[str] = (),
        levels: Sequence[int] = (),
        severities: Sequence[float] = (),
        options: Mapping[str, Any] | None = None,
        **plain: Any,
    ) -> Suite:
        """A copy with what the command line says instead; None and empty mean: as the suite has it.

        ``options`` go to every shift of the suite that has an option of that name. Scorers take the place of all that the
        suite names, fitted ones included. The suite's limit goes with its own source: another source is taken whole, unless a
        limit is given.
        """
        if severities and len(shifts) != 1:
            raise SoritesError("--severity needs exactly one --shift, because it is in that shift's own unit")
        if severities and levels:
            raise SoritesError("give --level or --severity, not both")
        named = {dial.name: dial for dial in self.shifts}
        dials = [named.get(name) or Dial(name=name) for name in shifts] or list(self.shifts)
        if not dials and levels:
            raise SoritesError("--level needs a shift: name one with --shift")
        stops = {"levels": tuple(levels)} if levels else {"severities": tuple(severities)} if severities else {}
        if stops:
            dials = [Dial(name=d.name, options=d.options, **stops) for d in dials]
        dials = _with_options(dials, {key: value for key, value in (options or {}).items() if value is not None})
        changed = {key: value for key, value in plain.items() if value is not None and value != ()}
        if "scorers" in changed:
            changed["scorers_if_fitted"] = ()
        base = self.model_dump()
        if changed.get("source", self.source) != self.source:
            base["limit"] = None
        return parse({**base, **changed, "shifts": [d.model_dump() for d in dials]}, self.name)


def _first_source(data: Any) -> Any:
    """Take the first of several sources as the suite's own, where the suite names no other."""
    if (
        not isinstance(data, dict)
        or "source" in data
        or not isinstance(data.get("sources"), (list, tuple))
        or not data["sources"]
    ):
        return data
    first, *others = data["sources"]
    if not isinstance(first, Mapping) or first.get("role", "familiar") != "familiar" or first.get("group"):
        raise ValueError('the first of the sources is the familiar one: it has a spec, no group, and no role but "familiar"')
    own = {"source": first.get("spec"), "source_name": first.get("name")}
    own |= {key: first[key] for key in ("limit", "frame") if first.get(key) is not None}
    return {**data, **own, "sources": others}


def _scorer_name(given: Any) -> Any:
    """A scorer with parameters as the table calls it; a plain name stays as it is."""
    if isinstance(given, str):
        return core.scorer_name(given) if "(" in given else given
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise ValueError(f'a scorer is a name or a table with one, such as {{name = "knn", k = 10}}, got {given!r}')
    return core.scorer_name(given["name"], {key: value for key, value in given.items() if key != "name"})


def _with_options(dials: Sequence[Dial], options: Mapping[str, Any]) -> list[Dial]:
    made, used = [], set[str]()
    for dial in dials:
        own = {k: v for k, v in options.items() if k in _options_of(dial)}
        used |= own.keys()
        made.append(dial.model_copy(update={"options": {**dial.options, **own}}))
    if options.keys() - used:
        key = min(options.keys() - used)
        have = "; ".join(f"{dial.name} has {', '.join(_options_of(dial)) or 'none'}" for dial in dials) or "it names no shift"
        raise SoritesError(f"no shift of the suite has an option {key!r}: {have}")
    return made


def _options_of(dial: Dial) -> list[str]:
    """List the options of a shift; one that only the samples of a source know, captured or as a dial of theirs, has none."""
    makes = core.SHIFTS.get(dial.name).configure if dial.name in core.SHIFTS.names() else None
    return [] if makes is None else list(inspect.signature(makes).parameters)


def builtin_suites() -> list[str]:
    return sorted(p.name.removesuffix(".toml") for p in files("sorites").joinpath("suites").iterdir() if p.name.endswith(".toml"))


def load(spec: str | Path | Suite) -> Suite:
    """A built-in suite by name, or a TOML file by path."""
    if isinstance(spec, Suite):
        return spec
    text = str(spec)
    if text in builtin_suites():
        held = toml_table(files("sorites").joinpath("suites", f"{text}.toml").read_text(encoding="utf-8"))
        return parse({"name": text, **held}, text)
    path = Path(text)
    if path.suffix != ".toml":
        raise UnknownName("suite", text, builtin_suites(), 'See "sorites list suites", or give a path that ends in .toml.')
    return parse({"name": path.stem, **toml_file(path, "a suite in TOML")}, str(path))


def parse(data: dict[str, Any], where: str) -> Suite:
    """Checked data to a suite; each mistake on a line of its own."""
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        raise SoritesError("\n".join(f"suite {where}: {line}" for line in mistakes(error, Suite))) from error
