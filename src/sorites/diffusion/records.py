"""Typed content of ``slider.json`` and ``word.json``: how a slider or a word was trained."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from sorites.io.validation import Record


class Learnt(Record):
    """The training of a slider or a word.

    Attributes:
        concept: The class that it was trained for, called ``class`` in the file.
        number: The number of the class among the labels.
        recipe: The parameters of the training recipe by name.
        last_loss: The loss of the last step.
        pipeline: The folder of the diffusion pipeline, or ``toy``.
        pipeline_version: A hash of the pipeline's weights.
        libraries: The versions of the libraries that trained it.
        version: A hash of its matrices or vectors.
        files: The digests of the files beside the record.
    """

    # ``Learnt(concept=...)`` in Python, "class" in the file.
    model_config = ConfigDict(populate_by_name=True)

    concept: str = Field(default="", validation_alias="class", serialization_alias="class")
    number: int | None = None
    recipe: dict[str, Any] = {}
    last_loss: float | None = None
    pipeline: str = ""
    pipeline_version: str = ""
    libraries: dict[str, str] = {}
    version: str = ""
    files: dict[str, str] = {}

    def training(self) -> dict[str, Any]:
        """Return what a training that is continued must have in common with it."""
        return {**self.recipe, "pipeline_version": self.pipeline_version}


class SliderRecord(Learnt):
    """The training of a slider: ``slider.json``.

    Attributes:
        shift: The name of its shift.
        neutral: The prompt without the shift.
        positive: The prompt with it.
        drawing: The settings of the sampler that draws with it, by name.
        base_version: A hash of the pipeline without learnt words, if it had any.
        word_version: A hash of the learnt word of its class, if it was trained with one.
        pairs: The number of pairs of images that it was learnt from, if it was.
        pairs_version: A hash of these pairs.
    """

    shift: str = ""
    neutral: str = ""
    positive: str = ""
    drawing: dict[str, Any] = {}
    base_version: str = ""
    word_version: str = ""
    pairs: int = 0
    pairs_version: str = ""


class WordRecord(Learnt):
    """The training of a word: ``word.json``.

    Attributes:
        token: The placeholder token in prompts.
        images: The number of images that it was learnt from.
    """

    token: str = ""
    images: int = 0
