"""A task: what people are asked of each image and how their answers are weighed, in TOML.

Data only, no logic.

Built-in tasks have names (``in_class``, ``context``, ``visible``, ``boxes``); a path to a .toml
file works wherever a name does.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from pydantic import Field, StrictInt, ValidationError, model_validator

from sorites.core.errors import SoritesError, UnknownName
from sorites.io.paths import is_file, path_of
from sorites.io.readers import text, toml_table
from sorites.io.validation import mistakes
from sorites.suites.suite import Strict

Kind = Literal["single", "several", "scale", "text", "boxes"]
Rule = Literal["better_check", "at_least_one", "majority"]
# The kinds of questions whose answers are not among a few given ones.
FREE = ("text", "boxes")
NONE = "none"
# The most characters of a free text.
LONGEST_TEXT = 2000
SEE = "Built-in tasks are in_class, context, visible and boxes; or give a path that ends in .toml."


class Choice(Strict):
    """One possible answer: the word that is kept, and what the page shows for it."""

    value: str = Field(min_length=1, max_length=100)
    text: str = ""
    key: str = Field(default="", max_length=1)

    @property
    def shown(self) -> str:
        return self.text or self.value


class Question(Strict):
    """One question asked of each image.

    ``{class}`` and ``{shift}`` in its text stand for those of the image.
    """

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")
    ask: str = Field(min_length=1)
    kind: Kind = "single"
    choices: tuple[Choice, ...] = ()
    low: StrictInt = 1
    high: StrictInt = 5
    """The ends of a scale."""
    optional: bool = False
    rule: Rule | None = None
    """The rule that settles answers that differ, where it is not the task's."""
    first: tuple[str, ...] = ()
    """For the rule at_least_one: the values from the strongest; the first that anybody gave is chosen."""

    valid: tuple[str, ...] = ()
    """The values by which an image of a run stays; where a question names some, its answers become
    the run's ``valid``.
    """
    attribute: str = Field(default="", max_length=40)
    """The name of the answer among the attributes of a run; the default is the question's id."""

    @model_validator(mode="after")
    def _whole(self) -> Question:
        values = [choice.value for choice in self.choices]
        if self.kind in ("single", "several", "boxes") and not values:
            raise ValueError(f"question {self.id}: wanted choices for the kind {self.kind}")
        if len(set(values)) < len(values):
            raise ValueError(f"question {self.id}: two choices have one value")
        if self.kind == "scale" and not 0 < self.high - self.low <= 100:
            raise ValueError(f"question {self.id}: wanted low below high, at most 100 apart")
        if others := sorted({*self.first, *self.valid} - set(values)):
            raise ValueError(f"question {self.id}: first or valid names {others[0]!r}, which is not a choice")
        if self.kind == "several" and any("," in value for value in values):
            raise ValueError(f"question {self.id}: a choice of several may not have a comma in it")
        return self

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(choice.value for choice in self.choices)


class Batches(Strict):
    """The batches in which images are handed out: their size, and the known images mixed in,
    which look like the others.
    """

    size: StrictInt = Field(default=25, ge=1, le=500)
    known: StrictInt = Field(default=2, ge=0, le=100)

    @model_validator(mode="after")
    def _room(self) -> Batches:
        if self.known >= self.size:
            raise ValueError(f"batch: wanted fewer known images than the size {self.size}, got {self.known}")
        return self


class Qualification(Strict):
    """The test that an annotator takes before the real images, and the share that must be right."""

    images: StrictInt = Field(default=10, ge=0, le=200)
    bar: float = Field(default=0.7, ge=0, le=1)


class Pay(Strict):
    """The pay for a batch, and the bonus for a number of batches; both are only printed."""

    batch: float = Field(ge=0)
    currency: str = Field(default="USD", max_length=8)
    bonus: float = Field(default=0, ge=0)
    bonus_batches: StrictInt = Field(default=0, ge=0)


class Task(Strict):
    """Questions with their instructions, and how the answers of several people become one."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,59}$")
    title: str = Field(min_length=1)
    instructions: str = Field(min_length=1)
    questions: tuple[Question, ...] = Field(min_length=1)
    annotators: StrictInt = Field(default=2, ge=1, le=20)
    """The number of people who answer for each image."""
    third: bool = False
    """True where an image on which they differ goes to one more person."""
    rule: Rule = "better_check"
    batch: Batches = Batches()
    qualification: Qualification = Qualification()
    pay: Pay | None = None

    @model_validator(mode="after")
    def _whole(self) -> Task:
        ids = [question.id for question in self.questions]
        if len(set(ids)) < len(ids):
            raise ValueError("two questions have one id")
        for question in self.questions:
            if self.rule_of(question) == "at_least_one" and question.kind == "single" and not question.first:
                raise ValueError(
                    f"question {question.id}: the rule at_least_one wants first = [the strongest value, ...]"
                )
        if sum(question.kind == "boxes" for question in self.questions) > 1:
            raise ValueError("a task has one question of boxes at most")
        return self

    def rule_of(self, question: Question) -> Rule:
        """Return the rule that settles a question: its own, or the task's."""
        return question.rule or self.rule

    def question(self, id_: str) -> Question:
        """Return a question by its id."""
        for question in self.questions:
            if question.id == id_:
                return question
        raise UnknownName("question", id_, [question.id for question in self.questions])


def names() -> list[str]:
    """Return the names of the built-in tasks."""
    return sorted(
        file.name[:-5]
        for file in files("sorites.apps.annotation").joinpath("tasks").iterdir()
        if file.name.endswith(".toml")
    )


def load(name: str) -> tuple[Task, str]:
    """Return a task by its name or path, and the TOML text that it was read from."""
    if not name.endswith(".toml"):
        if name not in names():
            raise UnknownName("task", name, names(), SEE)
        content = (
            files("sorites.apps.annotation").joinpath("tasks", f"{name}.toml").read_text(encoding="utf-8")
        )
        return parse(content, name), content
    path = path_of(name)
    if not is_file(path):
        raise SoritesError(f"wanted a task in TOML, got {path}, which is no file. {SEE}")
    content = text(path, "a task in TOML")
    return parse(content, str(path)), content


def parse(content: str, where: str = "task") -> Task:
    """Return the task that TOML text describes; each mistake is a line of the error."""
    try:
        return Task.model_validate(toml_table(content))
    except ValidationError as error:
        raise SoritesError("\n".join(f"task {where}: {line}" for line in mistakes(error, Task))) from error
    except ValueError as error:
        raise SoritesError(f"task {where}: not valid TOML: {error}") from error
