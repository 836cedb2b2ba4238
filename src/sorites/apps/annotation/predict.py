"""Predict attributes of images that nobody annotated: by heads, or by an encoder's softmax over given texts.

For a source they are a table; for a run they become facts, so that partitions and gaps are asked of
them as of any other attributes. An image that a shift of ours makes has the attributes of its
clean image. The confidence of each kind stands in the column ``degrees`` (``time_confidence``
...), and a record beside the facts says what predicted them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites import core
from sorites.apps.annotation.answers import chosen_answers
from sorites.apps.annotation.common_words import Commonness
from sorites.apps.annotation.heads import Annotated, AttributeHeads, Words, features_of
from sorites.core import CLEAN, Encoder, Features, ImageU8, Sample
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.core.labels import open_labels
from sorites.core.progress import Bar
from sorites.core.table import read, write_facts
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.samples import in_order
from sorites.io.files import write_bytes
from sorites.io.paths import path_of
from sorites.io.readers import toml_file
from sorites.sources.papers.focus import WORDS

# Attributes by an encoder: the softmax of an image's likeness to given texts, one text per word.


# The texts of CNS-Bench for OOD-CV, with our words for its rain, snow, fog and unknown.
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "weather": {
        "raining": "a picture of a {class} in rain",
        "snowing": "a picture of a {class} in snow",
        "foggy": "a picture of a {class} in fog",
        "none": "a picture of a {class} without snow nor fog nor rain",
    }
}

# The factor for cosines before the softmax: CLIP's own scale.
SCALE = 100.0

# The word for a class that is not known.
UNNAMED = "object"


@dataclass(frozen=True, eq=False)
class ReferenceTexts:
    """An encoder with the texts of each kind's words."""

    encoder: Encoder
    spec: str
    texts: Mapping[str, Mapping[str, str]]
    scale: float = SCALE

    @property
    def record(self) -> dict[str, Any]:
        """Return what the attributes follow from."""
        return {
            "encoder": self.spec,
            "version": self.encoder.version,
            "scale": self.scale,
            "texts": dict(self.texts),
        }

    def told(
        self, asked: Sequence[tuple[Callable[[], ImageU8], str | None]], tick: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, list[tuple[str, float]]]]]:
        """Yield the place of each image that can be read, with the likeliest word of each kind
        and its share.
        """
        encoded: dict[tuple[str, str], Features] = {}
        for at, (load, class_) in enumerate(asked):
            tick(1)
            try:
                image = load()
            except BadImage:
                continue
            seen = _unit(self.encoder.images([image], False))
            yield at, {kind: [self._best(seen, kind, class_ or UNNAMED, encoded)] for kind in self.texts}

    def _best(
        self, seen: Features, kind: str, class_: str, encoded: dict[tuple[str, str], Features]
    ) -> tuple[str, float]:
        if (kind, class_) not in encoded:
            sentences = [text.replace("{class}", class_) for text in self.texts[kind].values()]
            encoded[kind, class_] = _unit(self.encoder.texts(sentences))
        likeness = self.scale * (seen @ encoded[kind, class_].T)[0].astype(np.float64)
        raised = np.exp(likeness - likeness.max())
        shares = raised / raised.sum()
        best = int(shares.argmax())
        return list(self.texts[kind])[best], float(shares[best])


def reference_texts(encoder: str, file: str | None = None, scale: float = SCALE) -> ReferenceTexts:
    """Return an encoder by name with the texts of a file, or those published for weather."""
    return ReferenceTexts(core.encoder(encoder), encoder, read_texts(file) if file else PUBLISHED, scale)


def read_texts(file: str) -> dict[str, dict[str, str]]:
    """Return the texts of a TOML file, whose kinds and words are those of attributes."""
    found = toml_file(path_of(file), "a table of texts per kind, such as [weather]")
    for kind, texts in found.items():
        if kind not in WORDS:
            raise UnknownName(
                "kind of attribute", kind, WORDS, f"{file} has it; it is one of {', '.join(WORDS)}."
            )
        if (
            not isinstance(texts, dict)
            or len(texts) < 2
            or not all(isinstance(t, str) and t.strip() for t in texts.values())
        ):
            raise SoritesError(
                f'{file}: wanted two texts or more below [{kind}], such as night = "a {{class}} at night"'
            )
        for word in texts:
            if word not in WORDS[kind]:
                raise UnknownName(
                    kind, word, WORDS[kind], f"{file} has it; it is one of {', '.join(WORDS[kind])}."
                )
    if not found:
        raise SoritesError(f"{file}: wanted a table of texts per kind, such as [weather]; got none")
    return found


def _unit(features: Features) -> Features:
    return np.asarray(features / np.clip(np.linalg.norm(features, axis=1, keepdims=True), 1e-12, None))


NAME = "attributes"

# The words of an image by kind, each with its confidence.
Told = Mapping[str, Sequence[tuple[str, float]]]

SCHEMA = {"image": pl.String, "kind": pl.String, "value": pl.String, "confidence": pl.Float64}


@dataclass(frozen=True)
class Asked:
    """An image that is asked about: its name, its class in words where that is known, and how it is read."""

    name: str
    load: Callable[[], ImageU8]
    class_: str | None = None


# From images to the predicted words of each by name; images that cannot be read are absent.
Teller = Callable[[Sequence[Asked], Callable[[int], None]], dict[str, Told]]


def by_heads(heads: AttributeHeads) -> tuple[Teller, dict[str, Any]]:
    """Return a predictor by heads, and a record of it; a model of other weights than they were
    fitted on is refused.
    """
    model = core.model(heads.model)
    if model.version != heads.version:
        raise SoritesError(
            f"the heads were fitted on features of {heads.model} of other weights; fit them again"
        )

    def tell(asked: Sequence[Asked], tick: Callable[[int], None]) -> dict[str, Told]:
        features, kept = features_of(model, [one.load for one in asked], tick)
        by_kind = {head.kind: head.told(features) for head in heads.heads}
        return {
            asked[place].name: {kind: told[at] for kind, told in by_kind.items()}
            for at, place in enumerate(kept)
        }

    record = {
        "told_by": "heads",
        "model": heads.model,
        "version": heads.version,
        "measured": heads.measured.to_dicts(),
    }
    return tell, record


def by_texts(texts: ReferenceTexts) -> tuple[Teller, dict[str, Any]]:
    """Return a predictor by an encoder's softmax over texts, and a record of it."""

    def tell(asked: Sequence[Asked], tick: Callable[[int], None]) -> dict[str, Told]:
        return {
            asked[at].name: told for at, told in texts.told([(one.load, one.class_) for one in asked], tick)
        }

    return tell, {"told_by": "an encoder's softmax over texts", **texts.record}


def tell_source(tell: Teller, samples: Sequence[Sample], bar: Bar | None = None) -> pl.DataFrame:
    """Return the predicted words of a source's images: image, kind, value, confidence."""
    asked = [Asked(sample.image_id or sample.id, sample.load, _class_of(sample)) for sample in samples]
    told = tell(asked, bar("attributes", len(asked)) if bar else lambda n: None)
    rows = [
        (one.name, kind, word, sure)
        for one in asked
        for kind, some in told.get(one.name, {}).items()
        for word, sure in some
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _class_of(sample: Sample, names: Sequence[str] = ()) -> str | None:
    own = next((attr.value for attr in sample.attrs if attr.key == "class"), None)
    if own is None and sample.label is not None and 0 <= sample.label < len(names):
        return names[sample.label]
    return own


def tell_run(
    run: str | Path,
    tell: Teller,
    record: Mapping[str, Any],
    uncommon: str | None = None,
    bar: Bar | None = None,
) -> tuple[Path, pl.DataFrame]:
    """Write the predicted words of a run's images as facts beside its table; return the file and
    how many images have each.

    ``uncommon`` says how a word is known to be uncommon for a class (``Commonness``).
    """
    folder, plan = Path(run), plan_of(run)
    images = (
        read(folder)
        .select("image_id", "sample_id", "shift")
        .unique()
        .collect(engine="streaming")
        .sort("image_id")
    )
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
    write_bytes(
        json.dumps({**record, "uncommon": known.name}, indent=1).encode(), folder / "facts" / f"{NAME}.json"
    )
    words = [(kind, word) for some in facts.values() for kind, listed in some.items() for word, _ in listed]
    counted = (
        pl.DataFrame(words, schema=["kind", "value"], orient="row")
        .group_by("kind", "value")
        .agg(images=pl.len())
    )
    return path, counted.sort("kind", "images", descending=[False, True])


def _asked(plan: Plan) -> list[Asked]:
    """List the images of a plan that come as files: clean ones and captured ones."""
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
        sure = [
            {"measure": f"{kind}_confidence", "value": min(chance for _, chance in words)}
            for kind, words in told.items()
        ]
        rows.append({"image_id": image, "attrs": attrs, "degrees": sure})
    attr = pl.List(pl.Struct({"key": pl.String, "value": pl.String, "common": pl.Boolean}))
    degree = pl.List(pl.Struct({"measure": pl.String, "value": pl.Float64}))
    return pl.DataFrame(rows, schema={"image_id": pl.String, "attrs": attr, "degrees": degree})


# Images with words: the attributes that a source holds, or what people answered.


# Questions of the task context, and the kinds of attributes that they ask for.
QUESTIONS = {"time": "time", "weather": "weather", "locations": "location"}


def samples_of(spec: str) -> list[Sample]:
    """Return the images of a source in a fair order, whatever their classes."""
    return list(in_order(core.source(spec, open_labels())))


def annotated(spec: str, answers: Path | None = None) -> list[Annotated]:
    """Return the images of a source with their words; those that have none are left out."""
    samples = samples_of(spec)
    told = people_said(answers) if answers is not None else None
    pairs = [(sample, _own(sample) if told is None else told.get(name_of(sample), {})) for sample in samples]
    found = [Annotated(sample.id, sample.load, words) for sample, words in pairs if words]
    if not found:
        where = (
            f"{answers} has no answers for them"
            if answers
            else "give --answers FILE of people, or a source that has them"
        )
        raise SoritesError(f"no image of {spec} has a time, weather or location; {where}")
    return found


def name_of(sample: Sample) -> str:
    """Return the name of a sample's image in a labelling."""
    return sample.id if sample.shift == CLEAN else f"{sample.id} {sample.shift} {sample.setting.canonical}"


def _own(sample: Sample) -> dict[str, Words]:
    found: dict[str, list[str]] = {}
    for attr in sample.attrs:
        if attr.key in WORDS and attr.value in WORDS[attr.key]:
            found.setdefault(attr.key, []).append(attr.value)
    return {kind: tuple(words) for kind, words in found.items()}


def people_said(answers: Path) -> Mapping[str, dict[str, Words]]:
    """Return the chosen answers to time, weather and locations by image."""
    found: dict[str, dict[str, Words]] = {}
    for row in chosen_answers(answers).iter_rows(named=True):
        kind = QUESTIONS.get(row["question"])
        if kind:
            value = json.loads(row["value"])
            words: Sequence[str] = value if isinstance(value, list) else [value]
            found.setdefault(row["image"], {})[kind] = tuple(word for word in words if word in WORDS[kind])
    return found
