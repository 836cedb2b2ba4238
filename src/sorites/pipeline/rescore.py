"""Scorers added to a finished run: their rows come from the logits and features it kept, and no model looks again.

The rows are those the run itself would have written, images that refine a failure point apart: of those no features are kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core
from sorites.core import Outputs, Scorer
from sorites.errors import SoritesError
from sorites.files import locked, write_bytes
from sorites.pipeline import fit as fitting
from sorites.pipeline import folder as folders
from sorites.pipeline.scoring import INSIDE, WORDS, Scored, needs, scored
from sorites.table import SCHEMA, write

KEEP = "type the run's command again with --keep-features"


def score(run: str | Path, scorers: Sequence[str]) -> dict[str, int]:
    """Add the ``ood`` rows of scorers to a run folder; says how many rows each brought, 0 where all were there.

    All are fitted before the first row is written: where one cannot be, nothing is added.
    """
    folder = Path(run)
    info = folders.read_info(folder)
    names = list(dict.fromkeys(core.scorer_name(spec) for spec in scorers))
    added = dict.fromkeys(names, 0)
    with locked(folder):
        shards = {model: _shards(folder, model) for model in info["models"]}
        new = [name for name in names if name not in info["suite"]["scorers"]]
        for name in new:
            _refuse(folder, name, core.scorer(name), shards)
        todo = {(name, model): _todo(folder, name, mine) for name in new for model, mine in shards.items()}
        ready = {(name, model): _ready(folder, name, model) for (name, model), mine in todo.items() if mine}
        for (name, model), scorer in ready.items():
            added[name] += sum(_of_shard(folder, name, scorer, shard) for shard in todo[name, model])
        for name in new:
            _record(folder, name)
    return added


def _shards(folder: Path, model: str) -> list[Path]:
    """A model's shards of the grid: probes and scorers added before are not among them."""
    found = sorted((folder / "predictions").glob(f"*--{folders.slug(model)}.parquet"))
    return [path for path in found if path.stem.count("--") == 1 and not path.stem.partition("--")[0].endswith("-probe")]


def _features(folder: Path, shard: Path) -> Path:
    return folder / "features" / f"{shard.stem}.safetensors"


def _refuse(folder: Path, name: str, scorer: Scorer, shards: dict[str, list[Path]]) -> None:
    """What kept features cannot answer is an error before any row is written."""
    wants = needs(scorer)
    if wants & INSIDE:
        what = WORDS[min(wants & INSIDE)]
        raise SoritesError(f"{name} needs {what}, which kept features do not hold. Run the suite again with --scorer {name!r}.")
    every = [shard for mine in shards.values() for shard in mine]
    missing = [shard for shard in every if not _features(folder, shard).exists()]
    if missing or not every:
        raise SoritesError(f"{folder} kept the features of {len(every) - len(missing)} of {len(every)} shards: {KEEP}")
    for model in shards:
        if "training" in wants and next(fitting.training(folder, model), None) is None:
            raise SoritesError(
                f"{name} must be fitted on training pictures, and {folder} holds none for {model}: "
                "run the suite with --fit SOURCE and --keep-features"
            )
        if "head" in wants and fitting.read_head(folder, model) is None:
            raise SoritesError(f"{name} needs {WORDS['head']}, and {folder} holds none of {model}")


def _todo(folder: Path, name: str, shards: Sequence[Path]) -> list[Path]:
    return [shard for shard in shards if not folders.scores(folder, shard.stem, name).exists()]


def _ready(folder: Path, name: str, model: str) -> Scorer:
    """The scorer for one model, fitted where it is to be."""
    head = fitting.read_head(folder, model)
    scorer: Any = core.scorer(name)
    if "training" in needs(scorer):
        fitting.fit(scorer, folder, model, head)
    elif hasattr(scorer, "fit"):
        scorer.fit((), head)
    made: Scorer = scorer
    return made


def _of_shard(folder: Path, name: str, scorer: Scorer, shard: Path) -> int:
    labels = pl.read_parquet(shard, glob=False).filter(pl.col("output") == "label")
    rows = _rows(labels, name, _scores(_features(folder, shard), name, scorer))
    write(rows, folders.scores(folder, shard.stem, name))
    return rows.height


def _scores(features: Path, name: str, scorer: Scorer) -> dict[str, Scored]:
    """Image to its strangeness, or none and why."""
    from safetensors import safe_open

    with safe_open(features, "numpy") as file:
        ids, parts = json.loads(file.metadata()["image_id"]), {key: file.get_tensor(key) for key in set(file.keys())}
    ones = [Outputs(**{key: part[i : i + 1] for key, part in parts.items()}) for i in range(len(ids))]
    return dict(zip(ids, scored(name, scorer, ones), strict=True))


def _rows(labels: pl.DataFrame, name: str, scores: dict[str, Scored]) -> pl.DataFrame:
    """A label row with a score is a row of the scorer; one that is an error stays the same error."""
    found = [scores.get(image, (None, "its features were not kept")) for image in labels["image_id"]]
    failed = pl.Series([error for _, error in found], dtype=pl.String)
    made = labels.with_columns(
        output=pl.lit("ood"),
        scorer=pl.lit(name),
        score=pl.Series([value for value, _ in found], dtype=SCHEMA["score"]),
        error=pl.coalesce("error", failed),
    )
    return made.with_columns(correct=pl.when(pl.col("error").is_null()).then("correct")).select(SCHEMA.names())


def _record(folder: Path, name: str) -> None:
    info = folders.read_info(folder)
    known = info.get("scored", [])
    if name not in known:
        write_bytes(json.dumps({**info, "scored": [*known, name]}, indent=1).encode(), folder / "run.json")
