"""Annotation tasks in TOML: the questions about each image, and how answers are resolved.

Built-in tasks have names (``in_class``, ``context``, ``visible``, ``boxes``); the path of a .toml file works
wherever a name does.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from pydantic import Field, StrictInt, ValidationError, model_validator

from sorites.core.errors import SoritesError, UnknownName
from sorites.io.paths import is_file, path_of
from sorites.io.readers import text, toml_table
from sorites.io.validation import problems
from sorites.suites.suite import Strict

Kind = Literal["single", "several", "scale", "text", "boxes"]
Rule = Literal["better_check", "at_least_one", "majority"]
# Kinds of questions without a fixed set of answers.
OPEN_KINDS = ("text", "boxes")
NONE = "none"
# Maximum number of characters of a free text.
MAX_TEXT_LENGTH = 2000
TASK_HINT = "Built-in tasks are in_class, context, visible and boxes; or pass a path that ends in .toml."


class Choice(Strict):
    """A possible answer: the stored value, the displayed text, and a keyboard shortcut."""

    value: str = Field(min_length=1, max_length=100)
    text: str = ""
    key: str = Field(default="", max_length=1)

    @property
    def shown(self) -> str:
        return self.text or self.value


class Question(Strict):
    """A question about each image.

    ``{class}`` and ``{shift}`` in its text are replaced by those of the image.
    """

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")
    ask: str = Field(min_length=1)
    kind: Kind = "single"
    choices: tuple[Choice, ...] = ()
    low: StrictInt = 1
    high: StrictInt = 5
    """Ends of the scale."""
    optional: bool = False
    rule: Rule | None = None
    """The rule that resolves differing answers; by default the task's."""
    first: tuple[str, ...] = ()
    """For the rule at_least_one: values from strongest to weakest; the first that anyone gave is chosen."""

    valid: tuple[str, ...] = ()
    """Values that keep an image of a run; if set, the answers become the run's ``valid`` column."""
    attribute: str = Field(default="", max_length=40)
    """Name of the answer among a run's attributes; by default the question's id."""

    @model_validator(mode="after")
    def _check(self) -> Question:
        values = [choice.value for choice in self.choices]
        if self.kind in ("single", "several", "boxes") and not values:
            raise ValueError(f"question {self.id}: the kind {self.kind} needs choices")
        if len(set(values)) < len(values):
            raise ValueError(f"question {self.id}: two choices have the same value")
        if self.kind == "scale" and not 0 < self.high - self.low <= 100:
            raise ValueError(f"question {self.id}: low must be below high, by at most 100")
        if unknown := sorted({*self.first, *self.valid} - set(values)):
            raise ValueError(
                f"question {self.id}: first or valid names {unknown[0]!r}, which is not a choice"
            )
        if self.kind == "several" and any("," in value for value in values):
            raise ValueError(f"question {self.id}: choices of the kind several may not contain commas")
        return self

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(choice.value for choice in self.choices)


class Batches(Strict):
    """Batches of images: their size, and the number of hidden check images with known answers."""

    size: StrictInt = Field(default=25, ge=1, le=500)
    known: StrictInt = Field(default=2, ge=0, le=100)

    @model_validator(mode="after")
    def _check(self) -> Batches:
        if self.known >= self.size:
            raise ValueError(f"batch: known must be less than size ({self.size}), got {self.known}")
        return self


class Qualification(Strict):
    """The test that annotators take first, and the required accuracy."""

    images: StrictInt = Field(default=10, ge=0, le=200)
    bar: float = Field(default=0.7, ge=0, le=1)


class Suspension(Strict):
    """When an annotator is suspended: if the mean score on the last ``checks`` hidden check images is below
    ``bar``. Without checks, nobody is.
    """

    checks: StrictInt = Field(default=8, ge=0, le=200)
    bar: float = Field(default=0.5, ge=0, le=1)


class Pay(Strict):
    """Pay per batch, and a bonus per number of batches; both are only displayed."""

    batch: float = Field(ge=0)
    currency: str = Field(default="USD", max_length=8)
    bonus: float = Field(default=0, ge=0)
    bonus_batches: StrictInt = Field(default=0, ge=0)


class Task(Strict):
    """Questions with instructions, and how answers of several annotators are resolved."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,59}$")
    title: str = Field(min_length=1)
    instructions: str = Field(min_length=1)
    questions: tuple[Question, ...] = Field(min_length=1)
    annotators: StrictInt = Field(default=2, ge=1, le=20)
    """Number of annotators per image."""
    third: bool = False
    """True if images on which annotators differ go to one more."""
    rule: Rule = "better_check"
    batch: Batches = Batches()
    qualification: Qualification = Qualification()
    suspension: Suspension = Suspension()
    pay: Pay | None = None

    @model_validator(mode="after")
    def _check(self) -> Task:
        ids = [question.id for question in self.questions]
        if len(set(ids)) < len(ids):
            raise ValueError("two questions have the same id")
        for question in self.questions:
            if self.rule_of(question) == "at_least_one" and question.kind == "single" and not question.first:
                raise ValueError(
                    f"question {question.id}: the rule at_least_one needs first = [the strongest value, ...]"
                )
        if sum(question.kind == "boxes" for question in self.questions) > 1:
            raise ValueError("a task can have at most one question of the kind boxes")
        return self

    def rule_of(self, question: Question) -> Rule:
        """Return the rule of a question, or else the task's."""
        return question.rule or self.rule

    def question(self, id_: str) -> Question:
        """Return a question by id."""
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
    """Return a task by name or path, and its TOML text."""
    if not name.endswith(".toml"):
        if name not in names():
            raise UnknownName("task", name, names(), TASK_HINT)
        content = (
            files("sorites.apps.annotation").joinpath("tasks", f"{name}.toml").read_text(encoding="utf-8")
        )
        return parse(content, name), content
    path = path_of(name)
    if not is_file(path):
        raise SoritesError(f"Task file {path} not found. {TASK_HINT}")
    content = text(path, "a task in TOML")
    return parse(content, str(path)), content


def parse(content: str, where: str = "task") -> Task:
    """Parse and validate a task; errors list one mistake per line."""
    try:
        return Task.model_validate(toml_table(content))
    except ValidationError as error:
        raise SoritesError("\n".join(f"task {where}: {line}" for line in problems(error, Task))) from error
    except ValueError as error:
        raise SoritesError(f"task {where}: not valid TOML: {error}") from error
