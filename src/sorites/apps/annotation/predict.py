"""Predict attributes of images without annotations, by heads or by an encoder's softmax over texts.

For a source the result is a table. For a run, predictions become facts, so that metrics can group by them as
by other attributes; shifted images have the attributes of their clean image. The confidence of each kind is
in the column ``degrees`` (``time_confidence`` ...), and a JSON file beside the facts records the predictor.
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
from sorites.core.errors import BadImage, Notice, SoritesError, UnknownName, tell
from sorites.core.labels import open_labels
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import read, write_facts
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.samples import hashed_samples
from sorites.evaluation.storage.shards import write_metadata
from sorites.io.paths import path_of
from sorites.io.readers import toml_file
from sorites.sources.papers.focus import WORDS

# Attributes by an encoder: softmax over the similarity of an image to one text per word.


# The texts of CNS-Bench for OOD-CV, with our words for rain, snow, fog and unknown.
PUBLISHED_TEXTS: Mapping[str, Mapping[str, str]] = {
    "weather": {
        "raining": "a picture of a {class} in rain",
        "snowing": "a picture of a {class} in snow",
        "foggy": "a picture of a {class} in fog",
        "none": "a picture of a {class} without snow nor fog nor rain",
    }
}

# Factor for cosines before the softmax, as in CLIP.
SOFTMAX_SCALE = 100.0

# Stands for an unknown class in texts.
UNKNOWN_CLASS = "object"


@dataclass(frozen=True, eq=False)
class ReferenceTexts:
    """An encoder with one text per word of each kind."""

    encoder: Encoder
    spec: str
    texts: Mapping[str, Mapping[str, str]]
    scale: float = SOFTMAX_SCALE

    @property
    def record(self) -> dict[str, Any]:
        """Return a record of the predictor."""
        return {
            "encoder": self.spec,
            "version": self.encoder.version,
            "scale": self.scale,
            "texts": dict(self.texts),
        }

    def predict(
        self, queries: Sequence[tuple[Callable[[], ImageU8], str | None]], tick: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, list[tuple[str, float]]]]]:
        """Yield the index of each readable image, with the most likely word of each kind."""
        encoded: dict[tuple[str, str], Features] = {}
        for index, (load, class_) in enumerate(queries):
            tick(1)
            try:
                image = load()
            except BadImage:
                continue
            features = _unit(self.encoder.images([image], False))
            yield (
                index,
                {kind: [self._best(features, kind, class_ or UNKNOWN_CLASS, encoded)] for kind in self.texts},
            )

    def _best(
        self, features: Features, kind: str, class_: str, encoded: dict[tuple[str, str], Features]
    ) -> tuple[str, float]:
        if (kind, class_) not in encoded:
            sentences = [text.replace("{class}", class_) for text in self.texts[kind].values()]
            encoded[kind, class_] = _unit(self.encoder.texts(sentences))
        similarity = self.scale * (features @ encoded[kind, class_].T)[0].astype(np.float64)
        raised = np.exp(similarity - similarity.max())
        shares = raised / raised.sum()
        best = int(shares.argmax())
        return list(self.texts[kind])[best], float(shares[best])


def reference_texts(encoder: str, file: str | None = None, scale: float = SOFTMAX_SCALE) -> ReferenceTexts:
    """Return an encoder by name with the texts of a TOML file, or those published for weather."""
    return ReferenceTexts(
        core.encoder(encoder), encoder, read_texts(file) if file else PUBLISHED_TEXTS, scale
    )


def read_texts(file: str) -> dict[str, dict[str, str]]:
    """Read texts by kind and word from a TOML file."""
    texts_by_kind = toml_file(path_of(file), "a table of texts per kind, such as [weather]")
    for kind, texts in texts_by_kind.items():
        if kind not in WORDS:
            raise UnknownName(
                "kind of attribute", kind, WORDS, f"It is in {file}. Available: {', '.join(WORDS)}."
            )
        if (
            not isinstance(texts, dict)
            or len(texts) < 2
            or not all(isinstance(t, str) and t.strip() for t in texts.values())
        ):
            raise SoritesError(
                f'{file}: expected at least two texts below [{kind}], such as night = "a {{class}} at night"'
            )
        for word in texts:
            if word not in WORDS[kind]:
                raise UnknownName(
                    kind, word, WORDS[kind], f"It is in {file}. Available: {', '.join(WORDS[kind])}."
                )
    if not texts_by_kind:
        raise SoritesError(f"{file}: expected a table of texts per kind, such as [weather]; found none")
    return texts_by_kind


def _unit(features: Features) -> Features:
    return np.asarray(features / np.clip(np.linalg.norm(features, axis=1, keepdims=True), 1e-12, None))


FACTS_NAME = "attributes"

# Predicted words of an image by kind, each with its confidence.
PredictedWords = Mapping[str, Sequence[tuple[str, float]]]

SCHEMA = {"image": pl.String, "kind": pl.String, "value": pl.String, "confidence": pl.Float64}


@dataclass(frozen=True)
class ImageQuery:
    """An image to predict attributes of: its name, loader, and class name if known."""

    name: str
    load: Callable[[], ImageU8]
    class_: str | None = None


# Maps images to predicted words by image name; unreadable images are absent.
Predictor = Callable[[Sequence[ImageQuery], Callable[[int], None]], dict[str, PredictedWords]]


def by_heads(heads: AttributeHeads) -> tuple[Predictor, dict[str, Any]]:
    """Return a predictor by heads, and a record of it.

    Raises:
        SoritesError: If the model's weights are not those the heads were fitted on.
    """
    model = core.model(heads.model)
    if model.version != heads.version:
        raise SoritesError(f"the heads were fitted on other weights of {heads.model}; fit them again")

    def predict(queries: Sequence[ImageQuery], tick: Callable[[int], None]) -> dict[str, PredictedWords]:
        features, readable = features_of(model, [query.load for query in queries], tick)
        by_kind = {head.kind: head.predict(features) for head in heads.heads}
        far = heads.reach.far(features)
        if far.any():
            tell(_far_notice(int(far.sum()), len(far), heads), 3)
        return {
            queries[index].name: {
                kind: [] if far[row] else predicted[row] for kind, predicted in by_kind.items()
            }
            for row, index in enumerate(readable)
        }

    record = {
        "told_by": "heads",
        "model": heads.model,
        "version": heads.version,
        "measured": heads.measured.to_dicts(),
        "trained_on": {
            "source": heads.reach.source,
            "images": heads.reach.images,
            "objects": heads.reach.objects,
            "far_beyond": heads.reach.limit,
        },
    }
    return predict, record


def _far_notice(far: int, images: int, heads: AttributeHeads) -> Notice:
    text = (
        f"{far} of {images} images are farther from the training images of the heads than 99 % of held-out"
        f" images ({heads.reach.about}); no attributes are given for them"
    )
    return Notice(text, code="far_images", count=far)


def by_texts(texts: ReferenceTexts) -> tuple[Predictor, dict[str, Any]]:
    """Return a predictor by an encoder's softmax over texts, and a record of it."""

    def predict(queries: Sequence[ImageQuery], tick: Callable[[int], None]) -> dict[str, PredictedWords]:
        return {
            queries[index].name: predicted
            for index, predicted in texts.predict([(query.load, query.class_) for query in queries], tick)
        }

    return predict, {"told_by": "an encoder's softmax over texts", **texts.record}


def predict_source(predictor: Predictor, samples: Sequence[Sample], bar: Bar | None = None) -> pl.DataFrame:
    """Predict words for a source's images. Columns: image, kind, value, confidence; both are null where the
    predictor abstains.
    """
    queries = [ImageQuery(sample.image_id or sample.id, sample.load, _class_of(sample)) for sample in samples]
    predicted = predictor(queries, bar("attributes", len(queries)) if bar else lambda n: None)
    nothing: Sequence[tuple[str | None, float | None]] = [(None, None)]
    rows = [
        (query.name, kind, word, confidence)
        for query in queries
        for kind, words in predicted.get(query.name, {}).items()
        for word, confidence in (words or nothing)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _class_of(sample: Sample, names: Sequence[str] = ()) -> str | None:
    own = next((attr.value for attr in sample.attrs if attr.key == "class"), None)
    if own is None and sample.label is not None and 0 <= sample.label < len(names):
        return names[sample.label]
    return own


def predict_run(
    run: str | Path,
    predictor: Predictor,
    record: Mapping[str, Any],
    uncommon: str | None = None,
    bar: Bar | None = None,
) -> tuple[Path, pl.DataFrame]:
    """Predict words for a run's images, and write them as facts beside its table.

    Args:
        run: The run folder.
        predictor: The predictor.
        record: Record of the predictor.
        uncommon: How to decide which words are uncommon for a class (see ``Commonness.chosen``).
        bar: Creates a progress bar.

    Returns:
        The facts file, and the number of images per word.
    """
    folder, plan = Path(run), plan_of(run)
    images = (
        read(folder)
        .select("image_id", "sample_id", "shift")
        .unique()
        .collect(engine="streaming")
        .sort("image_id")
    )
    queries = {query.name: query for query in _unshifted_images(plan)}
    predicted = predictor(list(queries.values()), bar("attributes", len(queries)) if bar else lambda n: None)
    clean_id = {sample.id: plan.image_id(sample, CLEAN, sample.setting) for sample in plan.groups[CLEAN]}
    facts: dict[str, PredictedWords] = {}
    classes: dict[str, str | None] = {}
    for image, sample, shift in images.rows():
        origin = clean_id.get(sample, image) if shift in plan.shifts else image
        if origin in predicted:
            facts[image], classes[image] = predicted[origin], queries[origin].class_
    commonness = Commonness.chosen(
        uncommon, folder, ((classes[image], words) for image, words in facts.items())
    )
    path = write_facts(folder, FACTS_NAME, _facts(facts, classes, commonness))
    write_metadata(folder, FACTS_NAME, {**record, "uncommon": commonness.name})
    words = [
        (kind, word)
        for by_kind in facts.values()
        for kind, kind_words in by_kind.items()
        for word, _ in kind_words
    ]
    counts = (
        pl.DataFrame(words, schema=["kind", "value"], orient="row")
        .group_by("kind", "value")
        .agg(images=pl.len())
    )
    return path, counts.sort("kind", "images", descending=[False, True])


def _unshifted_images(plan: Plan) -> list[ImageQuery]:
    """Return the clean and captured images of a plan."""
    queries = {}
    for shift, samples in plan.groups.items():
        if shift not in plan.shifts:
            for sample in samples:
                name = plan.image_id(sample, shift, sample.setting)
                queries[name] = ImageQuery(name, sample.load, _class_of(sample, plan.labels.names))
    return list(queries.values())


def _facts(
    facts: Mapping[str, PredictedWords], classes: Mapping[str, str | None], commonness: Commonness
) -> pl.DataFrame:
    rows = []
    for image, predicted in facts.items():
        attrs = [
            {"key": kind, "value": word, "common": commonness(classes[image], kind, word)}
            for kind, words in predicted.items()
            for word, _ in words
        ]
        confidences = [
            {"measure": f"{kind}_confidence", "value": min(confidence for _, confidence in words)}
            for kind, words in predicted.items()
            if words
        ]
        rows.append({"image_id": image, "attrs": attrs, "degrees": confidences})
    attr = pl.List(pl.Struct({"key": pl.String, "value": pl.String, "common": pl.Boolean}))
    degree = pl.List(pl.Struct({"measure": pl.String, "value": pl.Float64}))
    return pl.DataFrame(rows, schema={"image_id": pl.String, "attrs": attr, "degrees": degree})


# Images with words: attributes of a source, or answers of annotators.


# Questions of the task context, and the kinds of attributes they ask for.
KIND_OF_QUESTION = {"time": "time", "weather": "weather", "locations": "location"}


def samples_of(spec: str) -> list[Sample]:
    """Return the images of a source in a fixed shuffled order, with any classes."""
    return list(hashed_samples(core.source(spec, open_labels())))


def annotated_images(spec: str, answers: Path | None = None) -> list[Annotated]:
    """Return the images of a source that have words, from its attributes or from a labelling."""
    samples = samples_of(spec)
    answered = annotator_words(answers) if answers is not None else None
    pairs = [
        (sample, _source_words(sample) if answered is None else answered.get(name_of(sample), {}))
        for sample in samples
    ]
    images = [Annotated(sample.id, sample.load, words) for sample, words in pairs if words]
    if not images:
        advice = (
            f"{answers} has no answers for them"
            if answers
            else f"pass {option('answers', 'FILE')} of annotators, or use a source with attributes"
        )
        raise SoritesError(f"no image of {spec} has a time, weather or location; {advice}")
    return images


def name_of(sample: Sample) -> str:
    """Return the name of a sample's image in a labelling."""
    return sample.id if sample.shift == CLEAN else f"{sample.id} {sample.shift} {sample.setting.canonical}"


def _source_words(sample: Sample) -> dict[str, Words]:
    words: dict[str, list[str]] = {}
    for attr in sample.attrs:
        if attr.key in WORDS and attr.value in WORDS[attr.key]:
            words.setdefault(attr.key, []).append(attr.value)
    return {kind: tuple(words) for kind, words in words.items()}


def annotator_words(answers: Path) -> Mapping[str, dict[str, Words]]:
    """Return the chosen answers to time, weather and locations by image."""
    words_by_image: dict[str, dict[str, Words]] = {}
    for row in chosen_answers(answers).iter_rows(named=True):
        kind = KIND_OF_QUESTION.get(row["question"])
        if kind:
            value = json.loads(row["value"])
            words: Sequence[str] = value if isinstance(value, list) else [value]
            words_by_image.setdefault(row["image"], {})[kind] = tuple(
                word for word in words if word in WORDS[kind]
            )
    return words_by_image
