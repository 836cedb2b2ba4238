"""The web server of the workbench: a thin layer of JSON over the library.

Every address begins with a token. ``apps.serving`` checks Host, Origin and sizes.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sorites.apps.annotation.task import names as task_names
from sorites.apps.serving import (
    LOOPBACK,
    Endpoint,
    Handler,
    application,
    error_reply,
    json_body,
    new_token,
    owner_of,
    reply,
    require,
    static,
)
from sorites.apps.workbench import explore, lenses, selection, turning
from sorites.apps.workbench.explaining import Explainer
from sorites.apps.workbench.library import Library, RunEntry
from sorites.apps.workbench.query import Query, parse_query
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.io.readers import numbers, parse_integer

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PAGE_FILES = (
    "page.css",
    "app.js",
    "runs.js",
    "explore.js",
    "trajectory.js",
    "turn.js",
    "lens.js",
    "embedding.js",
    "parts.js",
)
# Sides of thumbnails, px.
MIN_SIDE, MAX_SIDE = 32, 512
# Pages of runs contain their own scripts and styles, and load nothing.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " frame-ancestors 'none'; sandbox allow-scripts"
)
T = TypeVar("T")


@dataclass
class Workbench:
    """What the server shows."""

    library: Library
    selections: Path
    lenses: lenses.Lenses = field(default_factory=lenses.Lenses)
    token: str = field(default_factory=new_token)

    def __post_init__(self) -> None:
        self.bench = turning.Bench(self.library)
        self.explainer = Explainer()


Answer = Callable[[Workbench, "Request"], Any]


def workbench_app(workbench: Workbench, bind: str = LOOPBACK) -> Starlette:
    """Return the ASGI application of a workbench.

    Raises:
        MissingExtra: The libraries of the server are not installed.
    """

    def identify(request: Request) -> bool | None:
        return owner_of(request.path_params["token"], {workbench.token: True})

    def guarded(handler: Handler) -> Handler:
        return require(identify, 404, lambda request, _: handler(request))

    def answered(answer: Answer) -> Handler:
        async def handler(request: Request) -> Response:
            # Pixels and tables are computed in a thread, so that the others are served meanwhile.
            found = await asyncio.to_thread(answer, workbench, request)
            return found if not isinstance(found, dict | list) else reply(found)

        return guarded(handler)

    async def add_slash(request: Request) -> Response:
        return reply(b"", 308, headers={"Location": f"/{request.path_params['token']}/"})

    pages = {"": "index.html", **{name: name for name in PAGE_FILES}}
    endpoints: list[Endpoint] = [("GET", "/{token}", guarded(add_slash))]
    endpoints += [
        ("GET", f"/{{token}}/{path}", guarded(static("sorites.apps.workbench", "page", name)))
        for path, name in pages.items()
    ]
    endpoints += [("GET", f"/{{token}}/api/{name}", answered(answer)) for name, answer in ANSWERS.items()]
    endpoints += [
        ("POST", "/{token}/api/drop", guarded(_posted(workbench, _drop))),
        ("POST", "/{token}/api/select", guarded(_posted(workbench, _select))),
    ]
    return application(endpoints, bind, "view", max_body=turning.MAX_DROPPED_BYTES)


def _posted(workbench: Workbench, answer: Callable[[Workbench, Request], Awaitable[Response]]) -> Handler:
    async def handler(request: Request) -> Response:
        return await answer(workbench, request)

    return handler


def _text(request: Request, name: str, default: str = "") -> str:
    return str(request.query_params.get(name, default))


def _number(request: Request, name: str, default: int | None = None) -> int:
    """Return an integer of the query.

    Raises:
        SoritesError: It is missing or not an integer.
    """
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    number = parse_integer(text or "")
    if number is None:
        raise SoritesError(f"{name}: expected a number, got {text!r}")
    return number


def _float(request: Request, name: str) -> float:
    """Return a finite number of the query.

    Raises:
        SoritesError: It is missing or not a number.
    """
    values = numbers(_text(request, name), name)
    if len(values) != 1:
        raise SoritesError(f"{name}: expected one number, got {len(values)}")
    return values[0]


def _severities(request: Request, name: str = "at") -> dict[str, float]:
    """Return severities by name of a shift, from JSON such as {"jpeg": 30}."""
    try:
        data = json.loads(_text(request, name, "{}"))
    except (ValueError, RecursionError) as error:
        raise SoritesError(f"{name}: expected JSON: {error}") from error
    fine = isinstance(data, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in data.values()
    )
    if not fine:
        raise SoritesError(f'{name}: expected severities such as {{"jpeg": 30}}')
    return {str(shift): float(value) for shift, value in data.items()}


def _runs(workbench: Workbench, request: Request) -> Any:
    models = list(workbench.library.models)
    library = workbench.library
    return {
        "runs": [entry.summary() for entry in library.runs()],
        "models": models,
        "pages": library.pages(),
    }


def _curves(workbench: Workbench, request: Request) -> Any:
    entry = workbench.library.run(_text(request, "run"))
    unfinished = entry.opened().view.unfinished
    said = [] if unfinished is None else list(unfinished.sentences(True))
    metric, curves = entry.curves()
    return {"metric": metric, "curves": curves, "unfinished": said}


def _columns(workbench: Workbench, request: Request) -> Any:
    opened = workbench.library.run(_text(request, "run")).opened()
    return {"columns": explore.columns(opened), "images": opened.images.height, "tasks": task_names()}


def _images(workbench: Workbench, request: Request) -> Any:
    opened = workbench.library.run(_text(request, "run")).opened()
    query = parse_query(_text(request, "q"))
    shown = [query.sort] if query.sort else []
    found = explore.page(opened, query, _number(request, "start", 0), _number(request, "count", 100), shown)
    for image in found["images"]:
        image["words"] = opened.words(image["shift"], image["severity"])
    return found


def _embedding(workbench: Workbench, request: Request) -> Any:
    entry, query = workbench.library.run(_text(request, "run")), parse_query(_text(request, "q"))
    return explore.embedding(entry, query, _text(request, "model"), _text(request, "by", "components"))


def _trajectory(workbench: Workbench, request: Request) -> Any:
    entry, image = workbench.library.run(_text(request, "run")), _text(request, "image")
    row = entry.opened().row_of(image) if image else _number(request, "row")
    return explore.trajectory(entry, row)


def _explained(workbench: Workbench, request: Request) -> Any:
    entry = workbench.library.run(_text(request, "run"))
    return workbench.explainer.explained(entry, _number(request, "row"), _text(request, "model"))


def _code(workbench: Workbench, request: Request) -> Any:
    entry = workbench.library.run(_text(request, "run"))
    return {"code": parse_query(_text(request, "q")).code(str(entry.folder))}


def _image(workbench: Workbench, request: Request) -> Any:
    image = workbench.library.run(_text(request, "run")).image(_number(request, "row"))
    return reply(turning.png(image), kind="image/png")


def _thumbnail(workbench: Workbench, request: Request) -> Any:
    side = _number(request, "side", 160)
    if not MIN_SIDE <= side <= MAX_SIDE:
        raise SoritesError(f"side: expected {MIN_SIDE} to {MAX_SIDE}, got {side}")
    image = workbench.library.run(_text(request, "run")).image(_number(request, "row"))
    return reply(turning.thumbnail(image, side), kind="image/webp")


def _page(workbench: Workbench, request: Request) -> Any:
    path = workbench.library.page(_text(request, "run"), _text(request, "name"))
    if path is None:
        return error_reply(404, "there is no such page")
    return reply(path.read_bytes(), kind="text/html", headers={"Content-Security-Policy": PAGE_POLICY})


def _shifts(workbench: Workbench, request: Request) -> Any:
    run = _text(request, "run")
    plan = workbench.library.plan(run)
    return {
        "shifts": turning.shifts_of(plan),
        "samples": workbench.bench.samples(run),
        "models": list(plan.models),
    }


def _turn(workbench: Workbench, request: Request) -> Any:
    dial = workbench.bench.dial(_text(request, "run"), _text(request, "image"))
    return turning.turned(dial, _severities(request))


def _fails(workbench: Workbench, request: Request) -> Any:
    dial = workbench.bench.dial(_text(request, "run"), _text(request, "image"))
    fixed, shift, model = _severities(request), _text(request, "shift"), _text(request, "model")
    if model not in dial.plan.models:
        raise SoritesError(f"there is no model {model!r}")
    fixed.pop(shift, None)
    found = dial.failure_severity(shift, model, fixed)
    return turning.failed(dial, model, shift, found)


def _map(workbench: Workbench, request: Request) -> Any:
    dial = workbench.bench.dial(_text(request, "run"), _text(request, "image"))
    fixed, shift = _severities(request), _text(request, "shift")
    return {"cells": turning.map_row(dial, fixed, shift, _number(request, "cells", 7))}


def _lenses(workbench: Workbench, request: Request) -> Any:
    return workbench.lenses.listed()


def _lens(workbench: Workbench, request: Request) -> Any:
    """Return what a lens does at a place (``lens``, ``field``, ``azimuth``), or with a production error
    (``error``, ``size``).
    """
    dial = workbench.bench.dial(_text(request, "run"), _text(request, "image"))
    if error := _text(request, "error"):
        return lenses.with_error(dial, error, _float(request, "size"))
    place = _float(request, "field"), _float(request, "azimuth")
    return lenses.at_place(workbench.lenses, dial, _text(request, "lens"), *place)


async def _drop(workbench: Workbench, request: Request) -> Response:
    data = await request.body()
    try:
        return reply({"image": await asyncio.to_thread(workbench.bench.drop, data)})
    except BadImage as error:
        return error_reply(415, str(error))


async def _select(workbench: Workbench, request: Request) -> Response:
    content = await json_body(request)
    entry = workbench.library.run(str(content.get("run", "")))
    query, name = parse_query(json.dumps(content.get("q", {}))), str(content.get("name", ""))
    if content.get("as") == "tag":
        count = await asyncio.to_thread(selection.tag, entry, query, name)
        words = ["metrics", str(entry.folder), "accuracy", "--by", f"model,attrs.{selection.TAG}{name}"]
        return reply({"count": count, "next": shlex.join(["sorites", *words])})
    if content.get("as") == "folder":
        folder = workbench.selections / selection.checked_name(name)
        count = await asyncio.to_thread(selection.write_folder, entry, query, folder)
        return reply({"count": count, "next": f"csv:{folder / selection.LIST}"})
    if content.get("as") == "annotation":
        return reply(
            await asyncio.to_thread(_annotation, workbench, entry, query, name, str(content.get("task")))
        )
    return error_reply(422, "a selection becomes a folder, a tag or an annotation")


def _annotation(workbench: Workbench, entry: RunEntry, query: Query, name: str, task: str) -> dict[str, Any]:
    """Begin an annotation task, and return the command that serves it."""
    if task not in task_names():  # no file of the machine
        raise UnknownName("task", task, task_names(), f"The tasks are {', '.join(task_names())}.")
    file = workbench.selections / f"{selection.checked_name(name)}.sqlite"
    count = selection.begin_annotation(entry, query, task, file)
    words = ["--run", str(entry.folder), "--only", str(file.with_suffix(".csv")), "--out", str(file)]
    return {"count": count, "next": shlex.join(["sorites", "annotate", "serve", task, *words])}


ANSWERS: dict[str, Answer] = {
    "runs": _runs,
    "curves": _curves,
    "columns": _columns,
    "images": _images,
    "trajectory": _trajectory,
    "explained": _explained,
    "embedding": _embedding,
    "code": _code,
    "image": _image,
    "thumbnail": _thumbnail,
    "page": _page,
    "shifts": _shifts,
    "turn": _turn,
    "fails": _fails,
    "map": _map,
    "lenses": _lenses,
    "lens": _lens,
}
