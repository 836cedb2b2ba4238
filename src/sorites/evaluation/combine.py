"""Models of one name in several runs: told apart by their versions where these differ."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from sorites.core import CLEAN, split_spec
from sorites.core import table as tables
from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.unfinished import Unfinished, unfinished
from sorites.io.stores import place

# Characters of a version that are shown, unless two versions begin with the same ones.
SHORT = 6


def short_version(version: str, others: Sequence[str] = ()) -> str:
    """Return the beginning of a version that tells it from others, or a word where there is none."""
    length = next(
        (n for n in range(SHORT, len(version)) if all(other[:n] != version[:n] for other in others)),
        len(version),
    )
    return version[:length] or "no version"


def distinct_names(infos: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return, for each ``run.json``, the models that other runs hold in another version, with a
    name that says the version.
    """
    held: dict[str, list[str]] = {}
    for info in infos:
        for name, version in (info.get("models") or {}).items():
            held.setdefault(name, []).append(str(version or ""))

    def told(name: str, version: str) -> str:
        return f"{name} ({short_version(version, [other for other in set(held[name]) if other != version])})"

    differ = {name for name, versions in held.items() if len(set(versions)) > 1}
    return [
        {n: told(n, str(v or "")) for n, v in (info.get("models") or {}).items() if n in differ}
        for info in infos
    ]


def renamed(info: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``run.json`` says with other names of some models."""

    def keyed(part: Mapping[str, Any] | None) -> dict[str, Any]:
        return {names.get(key, key): value for key, value in (part or {}).items()}

    suite = dict(info.get("suite") or {})
    if suite.get("reference") in names:
        suite["reference"] = names[suite["reference"]]
    mapped = {key: keyed(info[key]) for key in ("models", "parameters", "chosen") if info.get(key)}
    listed = [names.get(name, name) for name in info.get("not_repeating") or ()]
    return {**info, **mapped, "suite": suite, **({"not_repeating": listed} if listed else {})}


# Images that a filter set aside in a run: how many there are, and, of several runs, those that only some
# of them set aside.


class Filtered(Protocol):
    """A run with its name and the ids of the images that are set aside in it."""

    @property
    def name(self) -> str: ...
    @property
    def aside(self) -> pl.Series | None: ...


def sentences(runs: Sequence[Filtered], partial: bool) -> list[str]:
    """Say how many images are set aside, and what that means where it is not the same in all runs."""
    counts = [f"{len(run.aside)} in {run.name}" for run in runs if run.aside is not None]
    if not counts:
        return []
    said = f"Images that a filter set aside are not counted: {', '.join(counts)}."
    if not only_in_some(runs):
        return [said]
    if partial:
        return [f"{said} Not all runs were filtered alike: models may stand on different images."]
    return [
        f"{said} Not all runs were filtered alike: what one sets aside is left out of all. Add {option('partial')} to"
        " use everything."
    ]


def only_in_some(runs: Sequence[Filtered]) -> list[str]:
    """Return the images that are set aside in some of the runs and not in all of them."""
    each = [set() if run.aside is None else set(run.aside) for run in runs]
    return sorted(set().union(*each) - each[0].intersection(*each[1:]))


def left_out(tables: Sequence[pl.LazyFrame], runs: Sequence[Filtered]) -> list[pl.LazyFrame]:
    """Return the tables of runs without the images that are set aside in some of them only."""
    some = only_in_some(runs)
    return [table.filter(~pl.col("image_id").is_in(some)) for table in tables] if some else list(tables)


# Runs side by side: one table of them all, cut down to what they share, and what has to be said of that.


SAMPLE = ("source", "sample_id")
SETTING_KEY = ("shift", "severity", "params")
PROBE = pl.col("probe").fill_null(False)


class Run(Protocol):
    """A run as it is asked: its table, name, ``run.json`` (empty for a bare table), what is
    missing, and the images set aside.
    """

    @property
    def table(self) -> pl.LazyFrame: ...
    @property
    def name(self) -> str: ...
    @property
    def info(self) -> Mapping[str, Any]: ...
    @property
    def unfinished(self) -> Unfinished | None: ...
    @property
    def aside(self) -> pl.Series | None: ...


@dataclass(frozen=True)
class Folder:
    """A run as its folder holds it."""

    table: pl.LazyFrame
    name: str
    info: Mapping[str, Any]
    unfinished: Unfinished | None = None
    aside: pl.Series | None = None
    """The ids of the images that a filter set aside; None where there are none."""


@dataclass(frozen=True)
class Together:
    """The table of one or more runs, in which an image that several runs share is counted once."""

    table: pl.LazyFrame
    tables: tuple[pl.LazyFrame, ...]
    """The rows of each run in it, in the order of the runs."""
    ids: tuple[tuple[str, ...], ...]
    """The values of ``run_id`` behind which each run stands."""
    notes: tuple[str, ...]
    """Sentences for the top of a table or page: what is missing, what the runs share, and what was
    left out.
    """
    comparable: bool = True
    """False where the runs share no sample."""


def read(run: str | Path | Sequence[str | Path], *more: str | Path, partial: bool = False) -> pl.LazyFrame:
    """The table of a run folder, lazily, or of several as one: ``read("a")``, ``read("a", "b")``
    and ``read(["a", "b"])``.

    Of an unfinished run only the samples that every model has at every setting are in it, and of
    several runs what they share; a warning says what was left out. ``partial`` keeps everything
    that is there. ``sorites.core.table.read`` reads the files of one folder as they are.
    """
    found = together(open_folders([*([run] if isinstance(run, str | Path) else run), *more]), partial)
    if found.notes:
        warnings.warn(Notice("\n".join(found.notes), code="incomplete"), stacklevel=2)
    return found.table


def open_folder(run: str | Path) -> Folder:
    """Read a run folder with what is missing of it; a folder of shards alone has no story."""
    folder = place(run)
    table = tables.read(folder)
    info = read_info(folder) if (folder / "run.json").exists() else {}
    return Folder(table, str(folder), info, unfinished(folder), tables.set_aside(folder))


def open_folders(runs: Sequence[str | Path]) -> list[Folder]:
    """Read run folders; the version stands beside the name of every model that another one holds in
    another version.
    """
    folders = [open_folder(run) for run in runs]
    names = distinct_names([folder.info for folder in folders])
    return [_renamed(folder, new) if new else folder for folder, new in zip(folders, names, strict=True)]


def _renamed(folder: Folder, names: Mapping[str, str]) -> Folder:
    table = folder.table.with_columns(pl.col("model").replace(dict(names)))
    return replace(folder, table=table, info=renamed(folder.info, names))


def together(runs: Sequence[Run], partial: bool = False) -> Together:
    """Return runs as one table; with ``partial`` everything that is there, else what is finished
    and shared.
    """
    if not runs:
        raise SoritesError("wanted at least one run, got none")
    notes = [said for run in runs if run.unfinished is not None for said in run.unfinished.sentences(partial)]
    notes += sentences(runs, partial)
    kept = [
        run.table if partial or run.unfinished is None else run.unfinished.keep(run.table) for run in runs
    ]
    if len(runs) == 1:
        return Together(kept[0], tuple(kept), (_ids(kept[0]),), tuple(notes))
    kinds = [_kind(run) for run in runs]
    named = [
        table if kind is None else table.with_columns(run_id=pl.lit(kind))
        for table, kind in zip(kept, kinds, strict=True)
    ]
    told = [_with_source(table, run, runs) for table, run in zip(named, runs, strict=True)]
    ids = tuple(_ids(table) if kind is None else (kind,) for table, kind in zip(told, kinds, strict=True))
    shared = _Shared.of(runs, told)
    notes += [*shared.sentences(partial), *_differences(runs), *_refinement(runs, partial)]
    cut = told if partial else left_out([shared.keep(table) for table in told], runs)
    if _refined_in_part(runs) and not partial:
        cut = [table.filter(~PROBE) for table in cut]
    whole = pl.concat(cut)
    if len(set(kinds) - {None}) < len([kind for kind in kinds if kind is not None]):
        whole = whole.unique(tables.KEY, keep="first", maintain_order=True)
    return Together(whole, tuple(cut), ids, tuple(notes), shared.comparable)


@dataclass(frozen=True)
class _Shared:
    """The samples that all runs have and the settings that all models have; None where there is
    nothing to leave out.
    """

    samples: pl.DataFrame | None
    settings: pl.DataFrame | None
    lost: tuple[tuple[str, int, int, tuple[str, ...]], ...]
    """Each run with its samples, how many of them are shared, and its shifts of which a setting is
    not shared.
    """
    count: int
    comparable: bool

    @staticmethod
    def of(runs: Sequence[Run], given: Sequence[pl.LazyFrame]) -> _Shared:
        some = [table.select(SAMPLE).unique().collect(engine="streaming") for table in given]
        both = some[0]
        for more in some[1:]:
            both = both.join(more, on=SAMPLE, how="semi", nulls_equal=True)
        each = [table.filter(~PROBE).select("model", *SETTING_KEY).unique() for table in given]
        settings = [table.collect(engine="streaming") for table in each]
        has = pl.concat(settings).unique()
        models = has["model"].n_unique()
        common = has.group_by(SETTING_KEY).len().filter(pl.col("len") == models).select(SETTING_KEY)
        rest = [_shifts_beyond(mine, common) for mine in settings]
        comparable = both.height > 0 or models == 1
        same = all(both.height == mine.height for mine in some) or not both.height
        lost = tuple(
            (name, mine.height, both.height, out)
            for name, mine, out in zip(_names(runs), some, rest, strict=True)
        )
        cut = common if any(rest) and common.height and both.height else None
        return _Shared(None if same else both, cut, lost, both.height, comparable)

    def keep(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return the shared rows; probes stay where all settings of their shift are shared."""
        if self.samples is not None:
            table = table.join(self.samples.lazy(), on=SAMPLE, how="semi", nulls_equal=True)
        if self.settings is None:
            return table
        cut = {shift for *_, shifts in self.lost for shift in shifts}
        grid = table.filter(~PROBE).join(self.settings.lazy(), on=SETTING_KEY, how="semi", nulls_equal=True)
        return pl.concat([grid, table.filter(PROBE & ~pl.col("shift").is_in(sorted(cut)))])

    def sentences(self, partial: bool) -> list[str]:
        if self.samples is None and self.settings is None and self.comparable:
            return []
        if not self.count:
            each = "; ".join(f"{name} has {mine}" for name, mine, _, _ in self.lost)
            return [
                f"These runs share no sample ({each}): each figure is about the samples of its own run, and"
                " no order follows."
            ]
        out = [_left_out(*one) for one in self.lost if one[1] != one[2] or one[3]]
        if partial:
            return [
                f"These runs do not hold the same ({'; '.join(out)}). All is used: models may stand on"
                " different images."
            ]
        shifts = (
            [name for name in self.settings["shift"].unique().sort() if name != CLEAN]
            if self.settings is not None
            else None
        )
        at = (
            ""
            if shifts is None
            else f" at the settings of {', '.join(shifts)} that all models have"
            if shifts
            else ", clean only"
        )
        about = f"These runs are compared on what they share: {self.count} samples{at}."
        return [f"{about} Left out: {'; '.join(out)}. Add {option('partial')} to use everything."]


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the runs' names, with the start of their ids where two have the same."""
    names = [run.name for run in runs]
    ids = [str(run.info.get("run_id") or f"number {place}")[:8] for place, run in enumerate(runs, 1)]
    return [f"{name} {id_}" if names.count(name) > 1 else name for name, id_ in zip(names, ids, strict=True)]


def _shifts_beyond(mine: pl.DataFrame, common: pl.DataFrame) -> tuple[str, ...]:
    beyond = mine.join(common, on=SETTING_KEY, how="anti", nulls_equal=True)
    return tuple(beyond["shift"].unique().sort())


def _left_out(name: str, mine: int, shared: int, shifts: Sequence[str]) -> str:
    parts = [f"{mine - shared} of its {mine} samples"] * (mine != shared) + [
        f"settings of {', '.join(shifts)}"
    ] * bool(shifts)
    return f"{name}: {' and '.join(parts)}"


def _differences(runs: Sequence[Run]) -> list[str]:
    """Say in which ways the same sample at the same setting is not the same image in all runs."""
    suites = [_suite(run) for run in runs if _suite(run)]
    said = []
    for key, what in (("frame", "frame"), ("frames", "frames of captured shifts"), ("seed", "seed")):
        values = list(dict.fromkeys(_spelled(suite.get(key)) for suite in suites))
        said += [f"{what} ({' and '.join(values)})"] if len(values) > 1 else []
    for shift in dict.fromkeys(name for run in runs for name in run.info.get("shifts") or {}):
        made = [run for run in runs if shift in (run.info.get("shifts") or {})]
        ways = {_spelled([run.info["shifts"][shift], _options(run, shift)]) for run in made}
        said += [f"options or version of {shift}"] if len(ways) > 1 else []
    return (
        [
            f"The runs differ in {', '.join(said)}: the same sample at the same setting is another image in"
            " each."
        ]
        if said
        else []
    )


def _refined_in_part(runs: Sequence[Run]) -> bool:
    return len({bool(_suite(run).get("refine")) for run in runs if _suite(run)}) > 1


def _refinement(runs: Sequence[Run], partial: bool) -> list[str]:
    if not _refined_in_part(runs):
        return []
    done = "they are used as they are" if partial else "all are taken at the settings of the suite"
    return [f"Failure severities are refined in some of the runs only; {done}."]


def _options(run: Run, shift: str) -> object:
    dials = [
        dial
        for dial in _suite(run).get("shifts", ())
        if isinstance(dial, Mapping) and dial.get("name") == shift
    ]
    return dials[0].get("options") or {} if dials else {}


def _spelled(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {part}" for key, part in value.items() if part is not None) or "none"
    return "none" if value is None else json.dumps(value, sort_keys=True, default=str)


def _suite(run: Run) -> Mapping[str, Any]:
    return run.info.get("suite") or {}


def _with_source(table: pl.LazyFrame, run: Run, runs: Sequence[Run]) -> pl.LazyFrame:
    """Tell apart the samples of two places that one reader read: the ids of two folders may be the
    same by chance.
    """
    spec = _suite(run).get("source")
    if not spec:
        return table
    reader, _ = split_spec(spec)
    specs = {str(_suite(other).get("source")) for other in runs if _suite(other)}
    if len([other for other in specs if split_spec(other)[0] == reader]) < 2:
        return table
    own = pl.col("source") == (_suite(run).get("source_name") or reader)
    return table.with_columns(source=pl.when(own).then(pl.lit(spec)).otherwise("source"))


def _kind(run: Run) -> str | None:
    """Return an id that is equal for runs with the same samples and random draws, or None for a
    bare table.
    """
    suite = _suite(run)
    if not suite:
        return None
    same = {key: suite.get(key) for key in ("source", "frame", "labels")}
    return digest(json.dumps(same, sort_keys=True, default=str), suite.get("seed")).hex()


def _ids(table: pl.LazyFrame) -> tuple[str, ...]:
    ids = table.select(pl.col("run_id").unique()).collect(engine="streaming")["run_id"]
    return tuple(id_ for id_ in ids if id_ is not None)
