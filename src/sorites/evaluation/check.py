"""Check whether a suite is ready to run, or whether a run folder is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core
from sorites.core import MODELS, SHIFTS, SOURCES, split_spec, table
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.evaluation import plan as plans
from sorites.evaluation.explanations import LIST, ROOM, read_image, read_list
from sorites.evaluation.fit import note_overlap
from sorites.evaluation.plan import grouped
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.folder import read_info, read_manifest, sampled_by
from sorites.evaluation.storage.shards import missing, read_facts, read_record, read_shard
from sorites.evaluation.storage.tensors import read_head_file, read_tensors
from sorites.io.files import locked
from sorites.io.paths import is_dir, is_file
from sorites.io.stores import place
from sorites.suites.suite import builtin_suites, load

# Files of a run folder that are no longer what was written: found by reading all of them, and set aside
# on request.


# The folder inside a run folder that damaged files are moved to; nothing reads it.
ASIDE = "damaged"

Read = Callable[[Path], object]
# Room, names, how a file is read in full, and what makes it again.
_READERS: tuple[tuple[str, str, Read, str], ...] = (
    ("predictions", "*.parquet", read_shard, "type the run's command again"),
    (
        "features",
        "*.safetensors",
        lambda path: read_tensors(path, ("image_id",)),
        "type the run's command again with --keep-features",
    ),
    (
        "fits",
        "*.safetensors",
        lambda path: read_tensors(path, ("sample_id", "label")),
        "type the run's command again",
    ),
    ("heads", "*.safetensors", read_head_file, "type the run's command again with --keep-features"),
    ("facts", "*.parquet", read_facts, "type the command that measured them again"),
    ("facts", "*.json", read_record, "type the command that measured them again"),
    (ROOM, LIST, read_list, "type: sorites explain RUN"),
    (ROOM, "*.webp", read_image, "type: sorites explain RUN"),
)


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, why, and what makes it again."""

    path: Path
    why: str
    remedy: str


def damage(folder: Path) -> list[Damage]:
    """Read every value of every file that can be made again, and return those that cannot be read."""
    return list(_found(folder, read_info(folder)["run_id"]))


def _found(folder: Path, run_id: str) -> Iterator[Damage]:
    for room, names, read, remedy in _READERS:
        for path in sorted((folder / room).glob(names)):
            try:
                held = read(path)
            except SoritesError as error:
                said = str(error).removeprefix(f"{path} cannot be read: ").partition(". Type: ")[0]
                yield Damage(path, said, remedy)
                continue
            if (
                room == "predictions"
                and isinstance(held, pl.DataFrame)
                and (held["run_id"].ne_missing(run_id)).any()
            ):
                yield Damage(path, "it holds rows of another run", remedy)


def set_aside(folder: Path) -> list[tuple[Damage, Path]]:
    """Move the damaged files of a run folder into its folder ``damaged``, so that they are made
    again; nothing is deleted.

    Facts go together with the record of their making. Return each with where it is now.
    """
    moved: list[tuple[Damage, Path]] = []
    with locked(folder):
        for one in damage(folder):
            twin = one.path.with_suffix(".json" if one.path.suffix == ".parquet" else ".parquet")
            together = (one.path, twin) if one.path.parent.name == "facts" else (one.path,)
            moved += [
                (one, _move(path, folder / ASIDE / path.parent.name)) for path in together if path.exists()
            ]
    return moved


def _move(path: Path, into: Path) -> Path:
    """Move a file into a folder, under a further name where one of its name lies there from before."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        names = (path.name, *(f"{path.stem}~{n}{path.suffix}" for n in range(2, 10_000)))
        place = next(into / name for name in names if not (into / name).exists())
        return path.rename(place)
    except OSError as error:
        raise SoritesError(f"cannot move {path} to {into}: {error.strerror or error}") from error


def lines(found: list[Damage]) -> list[str]:
    """Say what is damaged, a line each, the first ten."""
    more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
    return [f"{one.path} cannot be read: {one.why}" for one in found[:10]] + more


AGAIN = "the run's command again"


def check(what: str | Path, repair: bool = False) -> str:
    """Return one paragraph about a run folder or a suite; raise an error when something is wrong.

    ``repair`` sets damaged files of a run folder aside, so that the run's command makes them again.
    """
    what = str(what)
    folder = place(what)
    is_run = is_file(folder / "run.json") or (
        is_dir(folder) and what not in builtin_suites() and folder.suffix != ".toml"
    )
    if repair and not is_run:
        raise SoritesError(f"--repair wants a run folder, got {what}")
    return repair_run(folder) if repair else check_run(folder) if is_run else check_suite(what)


def check_suite(spec: str) -> str:
    """Check that every name resolves and the source can be read; nothing is evaluated."""
    suite = load(spec)
    names = labels(suite.labels)
    SOURCES.get(split_spec(suite.source)[0])
    for model in suite.models:
        MODELS.get(split_spec(core.named_spec(model)[1])[0])
    for scorer in suite.scorers:
        core.scorer(scorer)
    source = core.source(suite.source, names)
    bare = suite.model_copy(update={"models": ()})
    taken = grouped(suite, suite.source, source.samples)
    asked = [dial.name for dial in suite.shifts] or list(taken.own)
    settings = {name: taken.settings.get(name, ("captured",)) for name in asked}
    is_file = str(suite.reference).endswith(".csv")
    if suite.reference and suite.models and suite.reference not in suite.model_names and not is_file:
        among = ", ".join(suite.model_names)
        raise SoritesError(
            f"suite {suite.name}: reference {suite.reference!r} is not among its models {among}"
        )
    lines = [
        f"suite {suite.name}: {suite.about}".removesuffix(": "),
        f"source {suite.source}: {len(source)} images, {len(names)} labels",
    ]
    lines += (
        [f"limit: at most {suite.limit} samples of it are taken; --limit N changes that"]
        if suite.limit
        else []
    )
    if suite.sources:
        counts = Counter(s.source for group in plans.make(bare, source).groups.values() for s in group)
        lines += [f"{e.role} source {e.name} ({e.spec}): {counts[e.name]} images" for e in suite.sources]
    units = {name: f" ({dial.unit or 'severity'}, a dial of its samples)" for name, dial in taken.own.items()}
    lines += [
        f"shift {name}: {', '.join(map(str, at))}{units.get(name) or _unit(name)}"
        for name, at in settings.items()
    ]
    if suite.fit and (note := note_overlap(plans.make(bare, source))):
        lines.append(note)
    lines += [f"models: {', '.join(suite.models) or 'none; name some with --model'}"]
    lines += [f"next: sorites run {spec}{'' if suite.models else ' --model NAME'}"]
    return "\n".join(lines)


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS.names() else ""


def check_run(folder: Path) -> str:
    """Check that every file can be read, that the shards have the table's columns and keys, and
    that they cover every sample, stop, model and scorer.
    """
    info = read_info(folder)
    manifest = read_manifest(folder)
    if found := damage(folder):
        raise SoritesError("\n".join([*lines(found), table.repair(folder)]))
    rows = table.read(folder)
    wrong = table.check(rows)
    ood_samples = _count(rows.join(manifest.lazy().select("sample_id"), on="sample_id", how="anti"))
    if ood_samples:
        wrong.append(f"{ood_samples} rows of samples that its manifest does not list")
    if wrong:
        raise SoritesError(f"{folder}: " + "; ".join(wrong))
    if "imported" in info:
        return _imported(folder, rows, info)
    return _coverage(rows, manifest, info, _unrefined(folder, info))


def _count(rows: pl.LazyFrame) -> int:
    return int(rows.select(pl.len()).collect(engine="streaming").item())


def repair_run(folder: Path) -> str:
    """Set the damaged files of a run folder aside and return what was done, a line each, with what
    makes them again.
    """
    read_info(folder)
    read_manifest(folder)
    moved = set_aside(folder)
    if not moved:
        return f"nothing in {folder} is damaged\n{check_run(folder)}"
    said = [f"set aside {one.path} ({one.why}): now {place}" for one, place in moved]
    remedies = dict.fromkeys(one.remedy for one, _ in moved)
    return "\n".join([*said, f"next: {'; '.join(remedies)}"])


def _unrefined(folder: Path, info: Mapping[str, Any]) -> Counter[str]:
    """Count the slices of each model whose probes are missing."""
    if not info["suite"].get("refine"):
        return Counter()
    return Counter(
        name for names in missing(folder, plan_of(folder).probes(), info["models"]).values() for name in names
    )


def _imported(folder: Path, rows: pl.LazyFrame, info: Mapping[str, Any]) -> str:
    """An import is whole if it has the rows that its files held; they need not be the same images
    for every model.
    """
    wanted, held = info["imported"]["rows"], rows.select(pl.len()).collect(engine="streaming").item()
    if held != wanted:
        raise SoritesError(f"{folder}: {held} of {wanted} imported rows: type the import's command again")
    grid = rows.filter(pl.col("output") == "label", ~pl.col("probe"))
    counted = (
        grid.group_by("model")
        .agg(pl.len(), pl.col("error").count().alias("errors"))
        .collect(engine="streaming")
    )
    counts = {model: (seen, errors) for model, seen, errors in counted.iter_rows()}
    images = read_manifest(folder).height
    lines = [f"run {info['run_id']}: {images} images, imported as {info['imported']['as']}"]
    for name in info["models"]:
        seen, errors = counts.get(name, (0, 0))
        lines.append(f"{name}: {seen} rows, {errors} errors" + _not_in_files(info, images - seen))
    return "\n".join(lines)


def _not_in_files(info: Mapping[str, Any], images: int) -> str:
    """Images that other models have; images made up from counts belong to one model by nature."""
    return f", {images} images not in its files" if images and info["imported"]["as"] != "counts" else ""


def _coverage(
    rows: pl.LazyFrame, manifest: pl.DataFrame, info: Mapping[str, Any], unrefined: Counter[str]
) -> str:
    grid = rows.filter(~pl.col("probe"))
    by = grid.group_by("model", "output", "scorer", "shift").agg(pl.len(), errors=pl.col("error").count())
    seen: Counter[tuple[str, str | None, str]] = Counter()
    errors: Counter[str] = Counter()
    for model, output, scorer, shift, count, failed in by.collect(engine="streaming").iter_rows():
        seen[model, scorer if output == "ood" else None, shift] += count
        errors[model] += failed if output == "label" else 0
    wanted = _wanted(manifest, info)
    lines, whole = [f"run {info['run_id']}: {sum(wanted.values())} images per model"], True
    for name in info["models"]:
        held = sum(seen[name, None, shift] for shift in wanted)
        lacks = [f"{lack} missing"] if (lack := _lack(seen, wanted, name)) else []
        lacks += [f"{unrefined[name]} slice not refined"] * (name in unrefined)
        gone = {
            scorer: n - lack for scorer in _scorers(info) if (n := _lack(seen, wanted, name, scorer)) > lack
        }
        whole = whole and not lacks and not gone
        lines.append(
            f"{name}: {held} rows, {errors[name]} errors, {_lacking(lacks, gone, info.get('scored', ()))}"
        )
    if not whole:
        raise SoritesError("\n".join(lines))
    return "\n".join(lines)


def _lacking(lacks: Sequence[str], gone: Mapping[str, int], later: Collection[str]) -> str:
    """Say what a model lacks and what to type; rows of scorers that were added ``later`` are not
    made by the run's command.
    """
    typed = [AGAIN] * (bool(lacks) or not gone.keys() <= set(later))
    typed += [f"sorites score RUN --scorer {scorer}" for scorer in gone if scorer in later]
    said = [*lacks, *(f"{n} rows of {scorer} missing" for scorer, n in gone.items())]
    return f"{', '.join(said)}: type {', then '.join(typed)}" if said else "whole"


def _wanted(manifest: pl.DataFrame, info: Mapping[str, Any]) -> dict[str, int]:
    """Return how many images each shift has: as many as the source holds, or one per clean image
    and stop.
    """
    held = dict(manifest.group_by("shift", maintain_order=True).len().iter_rows())
    return held | {
        shift: sampled_by(manifest, shift).height * len(settings)
        for shift, settings in info["settings"].items()
    }


def _lack(
    seen: Counter[tuple[str, str | None, str]],
    wanted: Mapping[str, int],
    model: str,
    scorer: str | None = None,
) -> int:
    return sum(max(0, count - seen[model, scorer, shift]) for shift, count in wanted.items())


def _scorers(info: Mapping[str, Any]) -> list[str]:
    """List the scorers of the run and those added to it later."""
    return list(
        dict.fromkeys([*info.get("scorers", info["suite"].get("scorers", ())), *info.get("scored", ())])
    )
