"""Messages refer to options without knowing whether they are read in Python or in a shell."""

from __future__ import annotations

import pickle
import warnings

import pytest

from sorites.core.errors import Damaged, Notice, SoritesError, UnknownName
from sorites.core.messages import command, in_python, in_shell, option


@pytest.mark.parametrize(
    ("reference", "shell", "python"),
    [
        (option("partial"), "--partial", "partial=True"),
        (option("keep_features", None), "--keep-features", "keep_features"),
        (option("limit", 20), "--limit 20", "limit=20"),
        (option("fit", "SOURCE"), "--fit SOURCE", "fit=SOURCE"),
        (option("scorer", "msp"), "--scorer msp", "scorer='msp'"),
        (
            command("check", "RUN", repair=True),
            "sorites check RUN --repair",
            "sorites.check(RUN, repair=True)",
        ),
        (command("check", "runs/a"), "sorites check runs/a", "sorites.check('runs/a')"),
        (command("list", "shifts"), "sorites list shifts", '"sorites list shifts"'),
    ],
)
def test_a_reference_is_a_flag_in_a_shell_and_a_keyword_in_python(
    reference: str, shell: str, python: str
) -> None:
    assert in_shell(f"add {reference}.") == f"add {shell}."
    assert in_python(f"add {reference}.") == f"add {python}."


def test_an_error_reads_as_python_and_keeps_its_references_inside_another_message() -> None:
    error = SoritesError(f"add {option('partial')}", run="a")
    assert str(error) == "add partial=True"
    assert error.fields == {"run": "a"}
    assert in_shell(f"run a: {error}") == "run a: add --partial"


@pytest.mark.parametrize(
    "error",
    [
        SoritesError("a", n=1),
        UnknownName("shift", "jpg", ["jpeg"]),
        Damaged("x.parquet", "it is empty", "Remove it."),
    ],
)
def test_errors_survive_a_process_boundary(error: SoritesError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.fields, again.code) == (
        type(error),
        error.message,
        error.fields,
        error.code,
    )


def test_fields_say_what_an_error_is_about() -> None:
    assert UnknownName("shift", "jpg", ["jpeg", "fog"]).fields == {
        "kind": "shift",
        "name": "jpg",
        "suggestions": ("jpeg",),
    }


def test_a_notice_has_a_code_and_reads_as_python() -> None:
    with pytest.warns(Notice, match="partial=True") as caught:
        warnings.warn(
            Notice(f"unfinished; add {option('partial')}", code="incomplete", missing=3), stacklevel=1
        )
    notice = caught[0].message
    assert isinstance(notice, Notice)
    assert (notice.code, notice.fields) == ("incomplete", {"missing": 3})
