"""Fifty people with known rates of error on two thousand images: what the rules choose against
the truth.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pytest
from tests.conftest import scene

from sorites.apps.annotation.agreement import agreement, codes_of
from sorites.apps.annotation.answers import chosen_answers, given_answers
from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.images import Album, Entry
from sorites.apps.annotation.server import application
from sorites.apps.annotation.store import open_labelling
from sorites.apps.annotation.task import load

pytestmark = pytest.mark.slow

PEOPLE, IMAGES, KNOWN = 50, 2000, 40
WORDS = ("day", "night", "none")
TASK = """
name = "time"
title = "Time"
instructions = "Day or night?"
rule = "better_check"
[qualification]
bar = 0.4
[[questions]]
id = "time"
ask = "Time?"
choices = [{ value = "day" }, { value = "night" }, { value = "none" }]
"""


async def call(app: Any, path: str, token: str, data: Any = None) -> Any:
    """Ask the application in this process, as a server would."""
    body = b"" if data is None else json.dumps(data).encode()
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {token}".encode()),
        (b"content-type", b"application/json"),
    ]
    scope = {
        "type": "http", "method": "GET" if data is None else "POST", "path": path, "query_string": b"", "headers": headers,
        "http_version": "1.1", "scheme": "http", "root_path": "", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def work(
    app: Any, who: int, token: str, says: Callable[[int, int], str], turn: Callable[[], Awaitable[None]]
) -> None:
    """One person, who answers until there is nothing left to do."""
    clicks = 0
    while left := [item for item in (await call(app, "/api/work", token))["items"] if not item["answered"]]:
        for item in left:
            clicks += 1
            value = {"time": says(who, item["assignment"])}
            click = {
                "id": f"{who:04d}-{clicks:08d}",
                "assignment": item["assignment"],
                "action": "answer",
                "value": value,
            }
            assert (await call(app, "/api/clicks", token, {"clicks": [click]}))["kept"]
            await turn()


def simulate(path: Path, third: bool) -> tuple[float, float]:
    """Let everybody work, and return the share right of the chosen answers and of the average answer."""
    rng = np.random.default_rng(7)
    names = [f"{i}.png" for i in range(IMAGES + KNOWN)]
    ground_truth = dict(zip(names, rng.choice(WORDS, len(names)), strict=True))
    errors = rng.uniform(0.02, 0.45, PEOPLE)
    table = path.with_suffix(".csv")
    table.write_text("image,time\n" + "".join(f"{name},{ground_truth[name]}\n" for name in names[:KNOWN]))
    begin(
        path,
        TASK,
        [Entry(name, name, lambda: scene(0)) for name in names],
        "source test",
        known=table,
        third=third,
    )
    tokens = [token for _, token, _ in add_annotators(path, [f"person {i}" for i in range(PEOPLE)])]
    app = application(path, Album([]))

    async def everybody() -> None:
        async with app.router.lifespan_context(app):
            database = app.state.serving.database
            query = "SELECT p.name FROM assignments a JOIN images p ON p.id = a.image WHERE a.id = ?"

            def says(who: int, assignment: int) -> str:
                right = ground_truth[database.execute(query, (assignment,)).fetchone()[0]]
                return (
                    str(rng.choice([word for word in WORDS if word != right]))
                    if rng.random() < errors[who]
                    else right
                )

            async def turn() -> None:
                await asyncio.sleep(0)

            await asyncio.gather(*(work(app, who, token, says, turn) for who, token in enumerate(tokens)))

    asyncio.run(everybody())
    chosen, given = chosen_answers(path), given_answers(path)
    work_given = given.filter(given["role"] == "work")
    right = np.mean(
        [
            json.loads(value) == ground_truth[name]
            for name, value in chosen.select("image", "value").iter_rows()
        ]
    )
    average = np.mean(
        [
            json.loads(value) == ground_truth[name]
            for name, value in work_given.select("image", "value").iter_rows()
        ]
    )
    assert chosen.height == IMAGES
    return float(right), float(average)


def test_the_chosen_answers_are_better_than_people_and_better_still_with_a_third(tmp_path: Path) -> None:
    two, average = simulate(tmp_path / "two.sqlite", third=False)
    three, _ = simulate(tmp_path / "three.sqlite", third=True)
    print(f"right: average {average:.3f}, chosen of two {two:.3f}, with a third {three:.3f}")
    assert two > average + 0.02
    assert three > two + 0.02
    compare_alpha(tmp_path / "three.sqlite")


def compare_alpha(path: Path) -> None:
    """Alpha of what fifty people said is the package's."""
    row = agreement(path).row(0, named=True)
    answers: dict[str, dict[str, str]] = {}
    with open_labelling(path) as database:
        counted = {row[0] for row in database.execute("SELECT name FROM annotators WHERE state = 'working'")}
    for name, who, value, role in (
        given_answers(path).select("image", "annotator", "value", "role").iter_rows()
    ):
        if role == "work" and who in counted:
            answers.setdefault(name, {})[who] = json.loads(value)
    several = {name: given for name, given in answers.items() if len(given) > 1}
    codes = codes_of(several, lambda value: float(WORDS.index(value)))
    assert row["n"] == len(several) == IMAGES
    assert row["alpha"] == pytest.approx(krippendorff.alpha(codes, level_of_measurement="nominal"), abs=1e-6)
    assert row["alpha_low"] < row["alpha"] < row["alpha_high"]
    assert row["kappa_low"] < row["kappa"] < row["kappa_high"]


def test_the_task_is_one(tmp_path: Path) -> None:
    path = tmp_path / "time.toml"
    path.write_text(TASK)
    assert load(str(path))[0].rule == "better_check"
