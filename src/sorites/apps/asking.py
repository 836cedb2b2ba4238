"""From a question to the command that answers it: ``sorites ask``.

The questions are in ``questions.toml``. The search is BM25 (Robertson and Zaragoza 2009) over the words of
each question, further words that users have for it, and the answer; nothing leaves the machine.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from textwrap import indent

from pydantic import Field, ValidationError

from sorites.apps.options import AskOptions
from sorites.core.errors import SoritesError
from sorites.core.messages import command
from sorites.io.readers import toml_table
from sorites.io.validation import problems
from sorites.suites.suite import Strict

SHOWN = 3
# BM25: how soon further occurrences of a word stop counting, and how much long texts are discounted.
SATURATION, LENGTH = 1.2, 0.5
# Weights of the words of a question, of the further words, and of its answer.
WEIGHTS = (3, 2, 1)
# Words that say nothing about a question, and endings that are cut off, the longest first.
COMMON = (
    "a about all an and any are as at be by can could do does for from get give go had has have how i if in"
    " into is it its just me much my need of on or our out should so than that the their them there these"
    " they this to under up use using want was we what when where which while who will with would you your"
    " model models image images command commands"
)
ENDINGS = (
    "isations izations isation ization ations ation ated ates ate ities ness ings ing ies ied ises izes ised"
    " ized ise ize ity ers er ed es ly al s e"
)


class Question(Strict):
    """A question, and what answers it.

    Attributes:
        name: A short name, unique.
        question: The question as users ask it.
        words: Further words with which it is asked.
        commands: What to type, with PHOTOS, RUN and file names as placeholders.
        example: The same on the embedded data; runs as it stands.
        files: Files that the example needs, by name.
        minutes: About how long the example takes on two CPU cores, after the downloads.
        answer: What the answer looks like.
        page: The page of the documentation, perhaps with an anchor.
    """

    name: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$")
    question: str = Field(pattern=r"^[A-Z].*\?$")
    words: str = Field(min_length=1)
    commands: tuple[str, ...] = Field(min_length=1)
    example: tuple[str, ...] = Field(min_length=1)
    files: dict[str, str] = Field(default_factory=dict)
    minutes: int = Field(ge=1, strict=True)
    answer: str = Field(pattern=r"\.$")
    page: str = Field(pattern=r"^[a-z_]+\.md(#[a-z-]+)?$")


class _File(Strict):
    measured: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    question: tuple[Question, ...] = Field(min_length=1)


def ask(words: str = "") -> list[Question]:
    """Find the commands that answer a question.

    Args:
        words: What you would like to know, in your own words; default: all questions.

    Returns:
        The three questions that match best, the best first; all questions if there are no words.

    Raises:
        SoritesError: No question contains any of the words.
    """
    return found(AskOptions(words=words))


def found(options: AskOptions) -> list[Question]:
    """Return the questions that ``ask`` selects."""
    every = questions()
    if not options.words.strip():
        return list(every)
    scores = _scores(stems(options.words), every)
    best = sorted(range(len(every)), key=lambda i: -scores[i])
    matching = [every[i] for i in best[:SHOWN] if scores[i] > 0]
    if not matching:
        raise SoritesError(f"no question matches {options.words!r}. List all questions: {command('ask')}")
    return matching


def questions() -> tuple[Question, ...]:
    """Return all questions, in the order of the file."""
    return _file().question


def measured() -> str:
    """Return the date on which the examples were timed."""
    return _file().measured


@functools.cache
def _file() -> _File:
    return _parsed(files("sorites.apps").joinpath("questions.toml").read_text(encoding="utf-8"))


def parsed(text: str) -> tuple[Question, ...]:
    """Read questions in TOML.

    Raises:
        SoritesError: A key is missing, unknown or of another type, or two questions have one name.
    """
    return _parsed(text).question


def _parsed(text: str) -> _File:
    table = toml_table(text)
    try:
        found = _File.model_validate(table)
    except ValidationError as error:
        raise SoritesError(f"questions: {problems(error, _File)[0]}") from error
    twice = [name for name, n in Counter(one.name for one in found.question).items() if n > 1]
    if twice:
        raise SoritesError(f"questions: expected unique names, got {twice[0]} twice")
    return found


def described(found: Sequence[Question], short: bool = False) -> str:
    """Return questions as text: each with its commands, time and page, or one line each."""
    if short:
        lines = [one.question for one in found]
        return "\n".join([*lines, "", 'The commands of one of them: sorites ask "a few of its words"'])
    return "\n\n".join(map(_block, found))


def _block(one: Question) -> str:
    minutes = "1 minute" if one.minutes == 1 else f"{one.minutes} minutes"
    example, commands = ("\n".join(f"    {line}" for line in lines) for lines in (one.example, one.commands))
    files = "".join(f"\n  {name}:\n{indent(text.strip(), ' ' * 4)}" for name, text in one.files.items())
    own = f"{commands}\n" if one.commands != one.example else ""
    return (
        f"{one.question}\n  {one.answer}\n{own}"
        f"  On the embedded data, about {minutes} on two cores:\n{example}{files}\n  docs/{one.page}"
    )


def stems(text: str) -> list[str]:
    """Return the words of a text without common words and endings."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("-", " "))
    return [_stem(word) for word in words if word not in COMMON.split()]


def _stem(word: str) -> str:
    ending = next((end for end in ENDINGS.split() if word.endswith(end) and len(word) - len(end) >= 4), "")
    return word.removesuffix(ending)


def _scores(asked: Sequence[str], every: Sequence[Question]) -> list[float]:
    texts = [_weighted(one) for one in every]
    mean = sum(sum(text.values()) for text in texts) / len(texts)
    frequency = Counter(stem for text in texts for stem in text)
    rarity = {
        stem: math.log(1 + (len(texts) - frequency[stem] + 0.5) / (frequency[stem] + 0.5))
        for stem in set(asked)
    }
    return [sum(rarity[stem] * _gain(text, stem, mean) for stem in asked) for text in texts]


def _weighted(one: Question) -> Counter[str]:
    total: Counter[str] = Counter()
    for text, weight in zip((one.question, one.words, one.answer), WEIGHTS, strict=True):
        for stem in stems(text):
            total[stem] += weight
    return total


def _gain(text: Counter[str], stem: str, mean: float) -> float:
    length = 1 - LENGTH + LENGTH * sum(text.values()) / mean
    return text[stem] * (SATURATION + 1) / (text[stem] + SATURATION * length)
