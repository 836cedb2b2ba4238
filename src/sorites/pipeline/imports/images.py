"""The images of all files of an import, gathered file by file: each stands once in the manifest and once per model and output."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from sorites.errors import SoritesError
from sorites.pipeline.folder import MANIFEST
from sorites.pipeline.imports.cells import ROW
from sorites.pipeline.imports.rows import SHARED
from sorites.table import KEY

_VERDICT = ("pred", "correct", "error")
_SAME = ("source", "sample_id", "shift", "severity", "params", "label", "accept")
"""The columns on which all models must agree for an image."""


@dataclass
class Images:
    """The rows read so far: their keys by hash, and one row per image."""

    run_id: str
    rows: int = 0
    _files: list[str] = field(default_factory=list)
    _keys: list[pl.DataFrame] = field(default_factory=list)
    _images: list[pl.DataFrame] = field(default_factory=list)
    _models: dict[str, None] = field(default_factory=dict)

    def add(self, file: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a file that say something new; a row that stands twice, or contradicts another, is an error."""
        self._files.append(file)
        told = rows.with_columns(run_id=pl.lit(self.run_id))
        hashed = told.select(
            ROW, SHARED, key=pl.struct(KEY).hash(), verdict=pl.struct(_VERDICT).hash(), file=pl.lit(len(self._files) - 1)
        )
        ours = pl.col("key").is_in(hashed["key"].unique().implode())
        before = pl.concat([hashed.clear(), *(part.filter(ours) for part in self._keys)])
        self._refuse_twice(pl.concat([before, hashed]), told)
        fresh = hashed["key"].is_first_distinct() & ~hashed["key"].is_in(before["key"].implode())
        kept = told.filter(fresh)
        self._keys.append(hashed.filter(fresh))
        self._note_images(kept)
        self._models |= dict.fromkeys(kept["model"].unique(maintain_order=True))
        self.rows += kept.height
        return kept

    def _refuse_twice(self, keys: pl.DataFrame, told: pl.DataFrame) -> None:
        """Refuse a key that stands twice, unless every row of it may be repeated and says the same."""
        twice = keys.filter(pl.col("key").is_duplicated())
        same = (pl.col("verdict").n_unique().over("key") == 1) & (pl.col(SHARED).all().over("key"))
        bad = twice.filter(~same)
        if not bad.height:
            return
        first, second = bad.filter(pl.col("key") == bad["key"][0]).head(2).to_dicts()
        row = told.filter(pl.col(ROW) == second[ROW]).to_dicts()[0]
        what = f"{row['sample_id']} under {row['shift']} by {row['model']}"
        also = f"row {first[ROW]} of {self._files[first['file']]}"
        raise SoritesError(f"{self._files[second['file']]}, row {second[ROW]}, column sample_id: {what} stands twice, see {also}")

    def _note_images(self, rows: pl.DataFrame) -> None:
        accept = pl.col("accept").cast(pl.List(pl.String)).list.join(" ")
        told = {"framed": pl.lit(False), "same": pl.struct(*_SAME[:-1], accept).hash(), "file": pl.lit(len(self._files) - 1)}
        columns = [name for name in MANIFEST if name not in ("attrs", "framed")]
        noted = rows.filter(~pl.col("probe")).select(ROW, *columns, pl.col("attrs").fill_null([]), **told)
        self._images.append(noted.unique(["image_id", "same"], keep="first", maintain_order=True))

    def manifest(self) -> pl.DataFrame:
        """Return one row per image; files that say different things of one image are an error."""
        everything = pl.concat(self._images)
        differ = everything.filter(pl.col("same").n_unique().over("image_id") > 1)
        if differ.height:
            pair = differ.filter(pl.col("image_id") == differ["image_id"][0]).unique("same", keep="first", maintain_order=True)
            first, second = pair.head(2).to_dicts()
            name = next(name for name in _SAME if first[name] != second[name])
            also = f"row {first[ROW]} of {self._files[first['file']]} says {first[name]}"
            raise SoritesError(f"{self._files[second['file']]}, row {second[ROW]}, column {name}: {second[name]}, but {also}")
        return everything.unique("image_id", keep="first", maintain_order=True)

    def models(self) -> tuple[str, ...]:
        """Return the models, in the order of the files."""
        return tuple(self._models)

    def sources(self) -> list[str]:
        """Return the names of the sources."""
        return sorted(pl.concat([part["source"] for part in self._images]).unique())
