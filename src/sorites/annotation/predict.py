"""Predict attributes of pictures that nobody annotated: by heads, or by a referee's softmax over given texts.

For a source they are a table; for a run they become facts, so that partitions and gaps are asked of them as of any other
attributes. A picture that a shift of ours makes has the attributes of its clean picture. The confidence of each kind stands in
the column ``degrees`` (``time_confidence`` ...), and a record beside the facts says what predicted them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core
from sorites.annotation.common_words import Commonness
from sorites.annotation.heads import AttributeHeads, features_of
from sorites.annotation.texts import ReferenceTexts
from sorites.core import CLEAN, Picture, Sample
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline.plan import Plan
from sorites.pipeline.reopen import plan_of
from sorites.progress import Bar
from sorites.table import read, write_facts

NAME = "attributes"

Told = Mapping[str, Sequence[tuple[str, float]]]
"""The words of a picture by kind, each with its confidence."""

SCHEMA = {"picture": pl.String, "kind": pl.String, "value": pl.String, "confidence": pl.Float64}


@dataclass(frozen=True)
class Asked:
    """A picture that is asked about: its name, its class in words where that is known, and how it is read."""

    name: str
    load: Callable[[], Picture]
    class_: str | None = None


Teller = Callable[[Sequence[Asked], Callable[[int], None]], dict[str, Told]]
"""From pictures to the predicted words of each by name; pictures that cannot be read are absent."""


def by_heads(heads: AttributeHeads) -> tuple[Teller, dict[str, Any]]:
    """Return a predictor by heads, and a record of it; a model of other weights than they were fitted on is refused."""
    model = core.model(heads.model)
    if model.version != heads.version:
        raise SoritesError(f"the heads were fitted on features of {heads.model} of other weights; fit them again")

    def tell(asked: Sequence[Asked], tick: Callable[[int], None]) -> dict[str, Told]:
        features, kept = features_of(model, [one.load for one in asked], tick)
        by_kind = {head.kind: head.told(features) for head in heads.heads}
        return {asked[place].name: {kind: told[at] for kind, told in by_kind.items()} for at, place in enumerate(kept)}

    record = {"told_by": "heads", "model": heads.model, "version": heads.version, "measured": heads.measured.to_dicts()}
    return tell, record


def by_texts(texts: ReferenceTexts) -> tuple[Teller, dict[str, Any]]:
    """Return a predictor by a referee's softmax over texts, and a record of it."""

    def tell(asked: Sequence[Asked], tick: Callable[[int], None]) -> dict[str, Told]:
        return {asked[at].name: told for at, told in texts.told([(one.load, one.class_) for one in asked], tick)}

    return tell, {"told_by": "a referee's softmax over texts", **texts.record}


def tell_source(tell: Teller, samples: Sequence[Sample], bar: Bar | None = None) -> pl.DataFrame:
    """Return the predicted words of a source's pictures: picture, kind, value, confidence."""
    asked = [Asked(sample.image_id or sample.id, sample.load, _class_of(sample)) for sample in samples]
    told = tell(asked, bar("attributes", len(asked)) if bar else lambda n: None)
    rows = [(one.name, kind, word, sure) for one in asked for kind, some in told.get(one.name, {}).items() for word, sure in some]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _class_of(sample: Sample, names: Sequence[str] = ()) -> str | None:
    own = next((attr.value for attr in sample.attrs if attr.key == "class"), None)
    if own is None and sample.label is not None and 0 <= sample.label < len(names):
        return names[sample.label]
    return own


def tell_run(
    run: str | Path, tell: Teller, record: Mapping[str, Any], uncommon: str | None = None, bar: Bar | None = None
) -> tuple[Path, pl.DataFrame]:
    """Write the predicted words of a run's pictures as facts beside its table; return the file and how many pictures have each.

    ``uncommon`` says how a word is known to be uncommon for a class (``Commonness``).
    """
    folder, plan = Path(run), plan_of(run)
    images = read(folder).select("image_id", "sample_id", "shift").unique().collect(engine="streaming").sort("image_id")
    asked = {one.name: one for one in _asked(plan)}
    told = tell(list(asked.values()), bar("attributes", len(asked)) if bar else lambda n: None)
    of_clean = {sample.id: plan.image_id(sample, CLEAN, sample.setting) for sample in plan.groups[CLEAN]}
    facts: dict[str, Told] = {}
    for image, sample, shift in images.rows():
        shown = of_clean.get(sample, image) if shift in plan.shifts else image
        if shown in told:
            facts[image] = told[shown]
    classes = {image: asked[of_clean.get(sample, image) if shift in plan.shifts else image].class_
               for image, sample, shift in images.rows() if image in facts}  # fmt: skip
    known = Commonness.chosen(uncommon, folder, ((classes[image], some) for image, some in facts.items()))
    path = write_facts(folder, NAME, _facts(facts, classes, known))
    write_bytes(json.dumps({**record, "uncommon": known.name}, indent=1).encode(), folder / "facts" / f"{NAME}.json")
    words = [(kind, word) for some in facts.values() for kind, listed in some.items() for word, _ in listed]
    counted = pl.DataFrame(words, schema=["kind", "value"], orient="row").group_by("kind", "value").agg(images=pl.len())
    return path, counted.sort("kind", "images", descending=[False, True])


def _asked(plan: Plan) -> list[Asked]:
    """List the pictures of a plan that come as files: clean ones and captured ones."""
    found = {}
    for shift, samples in plan.groups.items():
        if shift not in plan.shifts:
            for sample in samples:
                name = plan.image_id(sample, shift, sample.setting)
                found[name] = Asked(name, sample.load, _class_of(sample, plan.labels.names))
    return list(found.values())


def _facts(facts: Mapping[str, Told], classes: Mapping[str, str | None], known: Commonness) -> pl.DataFrame:
    rows = []
    for image, told in facts.items():
        attrs = [
            {"key": kind, "value": word, "common": known(classes[image], kind, word)}
            for kind, words in told.items()
            for word, _ in words
        ]
        sure = [{"measure": f"{kind}_confidence", "value": min(chance for _, chance in words)} for kind, words in told.items()]
        rows.append({"image_id": image, "attrs": attrs, "degrees": sure})
    attr = pl.List(pl.Struct({"key": pl.String, "value": pl.String, "common": pl.Boolean}))
    degree = pl.List(pl.Struct({"measure": pl.String, "value": pl.Float64}))
    return pl.DataFrame(rows, schema={"image_id": pl.String, "attrs": attr, "degrees": degree})
