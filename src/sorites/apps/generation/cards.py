"""Describe a folder of generated images: dataset card, Croissant metadata, annotations as released."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.generation.files import CARD
from sorites.core.errors import SoritesError
from sorites.datasets.croissant import NAME as CROISSANT
from sorites.datasets.croissant import croissant_json
from sorites.io.digests import digest_of
from sorites.io.files import write_bytes
from sorites.io.listed import write_listed
from sorites.sources.papers.cns_bench import ANNOTATIONS
from sorites.sources.written import GENERATED

# Identifiers as in SPDX and on model hubs.
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")


@dataclass(frozen=True)
class Description:
    """The publisher's description of a folder of generated images.

    Attributes:
        name: The name of the dataset.
        licence: The licence of the images, an SPDX identifier or a name of a model hub; None if not stated.
        safety: The safety checker that saw the images; None if there was none.
    """

    name: str = "generated images"
    licence: str | None = None
    safety: str | None = None

    def __post_init__(self) -> None:
        if self.licence is not None and not _LICENCE.fullmatch(self.licence):
            raise SoritesError(
                f"licence: expected an identifier such as cc-by-4.0, got {self.licence[:80]!r}"
            )


def pipeline_licence(folder: Path) -> str | None:
    """Return the licence that the card in a pipeline's folder states; None if it states none."""
    card = folder / CARD
    if not card.is_file():
        return None
    head = re.match(r"---\n(.*?)\n---", card.read_text(encoding="utf-8", errors="replace")[:100_000], re.S)
    found = re.search(r"^license:\s*[\"']?([^\s\"']+)", head[1], re.M) if head else None
    return found[1] if found else None


def write_cards(
    out: Path, rows: pl.DataFrame, facts: Mapping[str, Any], about: Description, pipeline: Path
) -> None:
    """Write the card, Croissant metadata and, for single sliders, the annotations in the released form.

    Args:
        out: The folder, whose table has been written.
        rows: The rows of the table.
        facts: What all images share, as in the record of the folder.
        about: What the publisher says.
        pipeline: The folder of the pipeline.
    """
    record = out / GENERATED.record
    if not is_edited(out / CARD):
        write_bytes(sealed_text(dataset_card(rows, facts, about, pipeline_licence(pipeline))), out / CARD)
    if rows["severity"].null_count() == 0:
        write_listed(record, ANNOTATIONS, (json.dumps(released_annotations(rows), indent=0) + "\n").encode())
    classes = _classes(rows["class"].n_unique())
    text = f"{rows.height} images of {classes} along nuisance shifts, made by a diffusion model."
    table = (GENERATED.table, (out / GENERATED.table).read_bytes())
    write_listed(record, CROISSANT, croissant_json(about.name, text, table, rows, about.licence))


def sealed_text(text: str) -> bytes:
    """Return a card with the digest of its text in the last line, by which edits are noticed."""
    return f"{text}\n<!-- sorites {digest_of(text.encode())} -->\n".encode()


def is_edited(card: Path) -> bool:
    """Return whether a card is there that is not as it was written; such a card is not replaced."""
    if not card.exists():
        return False
    data = card.read_bytes()
    text = data.rpartition(b"\n<!-- sorites ")[0].decode(errors="replace")
    return data != sealed_text(text)


def released_annotations(rows: pl.DataFrame) -> dict[str, Any]:
    """Return ``annotations_cns.json`` in the released form, without images that text alone shifted."""
    chosen = rows.filter(pl.col("slider_version").is_not_null())
    columns = ("path", "seed", "severity", "shift", "class")
    names = ("image", "seed", "scale", "shift", "class")
    return {"images": [dict(zip(names, row, strict=True)) for row in chosen.select(columns).iter_rows()]}


def dataset_card(
    rows: pl.DataFrame, facts: Mapping[str, Any], about: Description, pipeline_licence: str | None
) -> str:
    """Return a dataset card in Markdown, with the metadata that model hubs read."""
    shifts, seeds = rows["shift"].unique().sort().to_list(), rows["seed"].unique().sort().to_list()
    texts = rows["text"].unique().sort().to_list()
    flagged = rows["flagged"] if "flagged" in rows.columns else pl.Series([None], dtype=pl.Boolean)
    checked = len(flagged) - flagged.null_count()
    by = f"`{about.safety}`" if about.safety else "a safety checker"
    unseen = f" The other {rows.height - checked} were not checked." if checked < rows.height else ""
    safety = (
        f"{int(flagged.sum() or 0)} of {checked} images checked by {by} were flagged; the column "
        f"`flagged` of the table marks them. They are not removed.{unseen}"
        if checked
        else "No safety checker saw these images."
    )
    head = {
        "license": about.licence or "unknown",
        "pretty_name": about.name,
        "task_categories": ["image-classification"],
        "size_categories": [_size(rows.height)],
        "tags": ["synthetic", "robustness", "distribution-shift", "croissant"],
    }
    drawn = {
        key: value
        for key, value in facts.items()
        if key not in ("sliders", "libraries", "files") and value not in (None, "")
    }
    classes = rows["class"].n_unique()
    lines = [
        "---",
        *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()),
        "---",
        "",
        f"# {about.name}",
        "",
        f"{rows.height} images of {_classes(classes)}, made by a diffusion model. They show no real scenes."
        " Each trajectory is one class and seed at rising severity of a nuisance shift.",
        "",
        "| | |",
        "|---|---|",
        f"| shifts | {_listed(shifts)} |",
        f"| classes | {_listed(rows['class_name'].unique().sort().to_list())} |",
        f"| severities | {_listed(_severities(rows))} |",
        f"| seeds | {_ranges(seeds)} |",
        f"| prompts | {_listed(texts)} |",
        f"| sliders | {_listed(facts.get('sliders', {}))} |",
        *(f"| {key} | {_cell(value)} |" for key, value in sorted(drawn.items())),
        f"| libraries | {_listed(f'{k} {v}' for k, v in sorted(facts.get('libraries', {}).items()))} |",
        f"| licence of the images | {about.licence or 'not stated: whoever publishes them states it'} |",
        f"| licence of the pipeline | {pipeline_licence or 'not stated in its folder'} |",
        "",
        f"**Safety.** {safety}",
        "",
        f"`{GENERATED.table}` has one row per image with its parameters and digest, `{CROISSANT}` the same"
        " as Croissant metadata. Every file names its model, prompt, seed and severity in its own metadata"
        " (XMP), with the IPTC source type trainedAlgorithmicMedia.",
        "",
        "Read with `sorites run cns_bench --source cns_bench:DIR`; verify with `sorites check DIR`.",
        "",
    ]
    return "\n".join(lines)


def _severities(rows: pl.DataFrame) -> list[str]:
    if rows["severity"].null_count():
        return rows["severities"].unique().sort().to_list()
    return [repr(value).removesuffix(".0") for value in rows["severity"].unique().sort()]


def _classes(count: int) -> str:
    return f"{count} class{'es' if count != 1 else ''}"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _listed(values: Any, most: int = 20) -> str:
    texts = [_cell(value) for value in values]
    return ", ".join(texts[:most]) + (f", and {len(texts) - most} more" if len(texts) > most else "")


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted whole numbers as ranges: "1 to 5, 9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _size(count: int) -> str:
    """Return the size category of a dataset as model hubs write it."""
    low, names = 1000, ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")
    for name in names:
        if count < low:
            return name
        low *= 10
    return "n>100M"
