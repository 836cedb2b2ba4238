"""The JSON of the workbench over real sockets: numbers of the table, pixels of the run, and nothing else."""

from __future__ import annotations

import base64
import gzip
import io
import json
import shlex
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from starlette.routing import Route
from tests.apps.workbench.toy import classify
from tests.conftest import CLASSES, scene

import sorites
from sorites.apps.annotation.begin import begin
from sorites.apps.annotation.images import from_run, origin_of, read_list
from sorites.apps.annotation.status import images
from sorites.apps.annotation.task import load
from sorites.apps.workbench.explaining import MASKS
from sorites.apps.workbench.library import Library
from sorites.apps.workbench.server import ANSWERS, PAGE_FILES, PAGE_POLICY, Workbench, workbench_app
from sorites.core.rng import rng_for
from sorites.lenses import store
from sorites.shifts.lens import kernel_index
from sorites.training.explain import masking
from sorites.training.explain.gradcam import heat


@pytest.fixture(scope="module")
def client(served: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{served}api/", timeout=300) as opened:
        yield opened


@pytest.fixture(scope="module")
def key(client: httpx.Client) -> str:
    (run,) = client.get("runs").json()["runs"]
    assert run["models"] == ["classify", "coarse"]
    return str(run["key"])


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Pillow.open(io.BytesIO(data)).convert("RGB"))


def test_the_page_is_small(served: str) -> None:
    with httpx.Client(base_url=served) as client:
        files = [client.get(name).content for name in ("", *PAGE_FILES)]
    assert sum(len(gzip.compress(data)) for data in files) < 100_000


def test_pages_and_images(client: httpx.Client, key: str, workbench: Workbench, finished: Path) -> None:
    query = json.dumps(
        {"where": [["shift", "is", "gaussian_noise"]], "sort": "conf coarse", "descending": True}
    )
    found = client.get("images", params={"run": key, "q": query, "count": 5}).json()
    assert found["total"] == 8 * 5
    confidences = [line["conf coarse"] for line in found["images"]]
    assert confidences == sorted(confidences, reverse=True)
    row = found["images"][0]["row"]
    shown = client.get("image", params={"run": key, "row": row}).content
    entry = workbench.library.run(key)
    assert np.array_equal(pixels(shown), entry.image(row))
    small = client.get("thumbnail", params={"run": key, "row": row, "side": 64})
    assert max(pixels(small.content).shape[:2]) == 64
    trajectory = client.get("trajectory", params={"run": key, "row": row}).json()
    rows = (
        sorites.read(finished)
        .filter(sample_id=trajectory["sample"], output="label", model="coarse")
        .collect()
    )
    kept = {"run": key, "image": trajectory["image_id"]}
    assert client.get("trajectory", params=kept).json() == trajectory
    answers = {image["row"]: image["models"]["coarse"] for image in trajectory["images"]}
    assert len(answers) == rows.height == 11
    assert sorted(answer["conf"] for answer in answers.values()) == sorted(rows["conf"].to_list())


def test_curves_are_those_of_the_metric(client: httpx.Client, key: str, finished: Path) -> None:
    found = client.get("curves", params={"run": key}).json()
    table = sorites.read(finished)
    expected = sorites.accuracy(table, by=["model", "shift", "severity"])
    assert [point["value"] for point in found["curves"]] == expected["value"].to_list()
    assert found["unfinished"] == []


def test_the_dial_shows_the_pixels_that_the_model_sees(
    client: httpx.Client, key: str, workbench: Workbench
) -> None:
    about = client.get("shifts", params={"run": key}).json()
    assert [shift["name"] for shift in about["shifts"] if shift["in_run"]] == [
        "defocus_disk",
        "gaussian_noise",
    ]
    sample, images = about["samples"][0]["id"], workbench.library.run(key).opened().images
    place = images.with_row_index("row").filter(sample_id=sample, shift="defocus_disk", severity=6.0)
    turned = client.get(
        "turn", params={"run": key, "image": sample, "at": json.dumps({"defocus_disk": 6})}
    ).json()
    data = base64.b64decode(turned["image"].partition(",")[2])
    assert np.array_equal(pixels(data), workbench.library.run(key).image(place["row"].item()))
    assert turned["models"]["coarse"]["conf"] == place["conf coarse"].item()
    assert turned["point"].startswith("data:image/png")
    row = client.get(
        "map",
        params={
            "run": key,
            "image": sample,
            "at": '{"gaussian_noise": 0}',
            "shift": "defocus_disk",
            "cells": 3,
        },
    ).json()["cells"]
    assert [cell["severities"]["defocus_disk"] for cell in row] == [0.0, 5.0, 10.0]
    fails = client.get(
        "fails", params={"run": key, "image": sample, "shift": "defocus_disk", "model": "coarse"}
    ).json()
    assert fails.keys() == {"model", "shift", "holds", "fails", "holds_words", "fails_words"}
    assert turned["words"] == {"defocus_disk": "6 px out of focus"}


def test_a_dropped_image_can_be_turned(client: httpx.Client, key: str) -> None:
    buffer = io.BytesIO()
    Pillow.fromarray(scene(5, 300, 400)).save(buffer, "PNG")
    image = client.post("drop", content=buffer.getvalue()).json()["image"]
    turned = client.get("turn", params={"run": key, "image": image, "at": "{}"}).json()
    assert turned["error"] is None
    assert (turned["width"], turned["height"], turned["label"]) == (224, 224, None)
    assert turned["models"]["coarse"]["correct"] is None
    for data in (b"", b"GIF89a nothing", buffer.getvalue()[:200]):
        assert client.post("drop", content=data).status_code == 415
    assert client.post("drop", content=bytes(21 << 20)).status_code == 413


def test_a_selection_becomes_a_folder_and_a_tag(
    client: httpx.Client, key: str, workbench: Workbench, finished: Path
) -> None:
    query = {"where": [["correct coarse", "is", False], ["shift", "is", "defocus_disk"]]}
    made = client.post("select", json={"run": key, "q": query, "as": "folder", "name": "wrong"}).json()
    samples = list(sorites.source(made["next"], labels=None))
    assert len(samples) == made["count"] > 0
    tagged = client.post("select", json={"run": key, "q": query, "as": "tag", "name": "hard"}).json()
    assert tagged["count"] == made["count"]
    assert shlex.split(tagged["next"])[-2:] == ["--by", "model,attrs.tag.hard"]
    every = client.post("select", json={"run": key, "q": {}, "as": "tag", "name": "every"}).json()
    marked = sorites.images(finished)  # an image can have several tags
    assert marked.filter(pl.col("tag.hard") == "yes").height == made["count"]
    assert marked.filter(pl.col("tag.every") == "yes").height == every["count"] == marked.height
    names = {column["name"] for column in client.get("columns", params={"run": key}).json()["columns"]}
    assert {"tag.hard", "tag.every"} <= names
    accuracies = sorites.accuracy(sorites.read(finished), by=["model", "attrs.tag.hard"])
    found = accuracies.filter(model="coarse").rows_by_key("attrs.tag.hard", named=True, unique=True)
    assert (found["yes"]["n"], found["yes"]["value"]) == (made["count"], 0)
    assert found[None]["n"] == marked.height - made["count"]
    for name in ("../up", "", "a/b", "x" * 99):
        refused = client.post("select", json={"run": key, "q": query, "as": "folder", "name": name})
        assert refused.status_code == 422


def test_a_selection_becomes_an_annotation_task(
    client: httpx.Client, key: str, workbench: Workbench, finished: Path
) -> None:
    query = {"where": [["correct coarse", "is", False], ["shift", "is", "defocus_disk"]]}
    asked = {"run": key, "q": query, "as": "annotation", "name": "doubt", "task": "in_class"}
    made = client.post("select", json=asked).json()
    words = shlex.split(made["next"])
    assert words[:4] == ["sorites", "annotate", "serve", "in_class"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    assert Path(given["--run"]) == finished
    wrong = sorites.images(finished).filter(pl.col("correct coarse").not_(), shift="defocus_disk")
    assert set(pl.read_csv(given["--only"])["image_id"]) == set(wrong["image_id"])
    assert images(Path(given["--out"]))["images"] == made["count"] == wrong.height
    # The command finds the same task, images and origin, and goes on with them.
    entries = from_run(finished, read_list(Path(given["--only"])))
    begin(Path(given["--out"]), load("in_class")[1], entries, origin_of(finished))
    assert images(Path(given["--out"]))["images"] == made["count"]
    for other in ({"task": "/etc/passwd.toml"}, {"task": "boxes"}, {"name": "../up"}):
        assert client.post("select", json={**asked, **other}).status_code == 422


def test_maps_are_those_of_explain(client: httpx.Client, key: str, workbench: Workbench) -> None:
    entry = workbench.library.run(key)
    table = entry.opened().images.with_row_index("row")
    row = table.filter(shift="gaussian_noise").row(0, named=True)
    answer = client.get("explained", params={"run": key, "row": row["row"], "model": "coarse"}).json()
    assert (answer["class"], answer["method"]) == (row["answer coarse"], f"RISE, {MASKS} masks")
    plan, image = entry.plan(), entry.image(row["row"])
    model, column = plan.models["coarse"], CLASSES.index(CLASSES[row["pred coarse"]])
    score = masking.class_score(model, column, framed=True)
    rng = rng_for(plan.suite.seed, row["sample_id"], "rise")
    found, clear = masking.rise(score, image, rng, masks=MASKS)
    assert answer["empty"] is not clear
    expected = heat(image.astype(np.float32), (found - found.min()).astype(np.float32))
    assert np.array_equal(pixels(base64.b64decode(answer["image"].partition(",")[2])), expected)
    for wrong in ({"model": "nobody"}, {"row": "-1"}, {"row": "99999"}):
        of = {"run": key, "row": row["row"], "model": "coarse", **wrong}
        assert client.get("explained", params=of).status_code == 422


@pytest.mark.slow
def test_a_lens_shows_what_a_run_saw_and_the_transform_of_its_kernel(
    client: httpx.Client, key: str, workbench: Workbench, finished: Path, tmp_path: Path
) -> None:
    listed = client.get("lenses").json()
    assert {lens["name"] for lens in listed["lenses"]} == set(store.names(store.builtin()))
    suite = workbench.library.run(key).record.suite
    run = sorites.run(
        suite.model_copy(update={"shifts": (), "scorers": (), "limit": 1}),
        shifts=["lens"],
        out=tmp_path / "lens",
    )
    rows = run.table.filter(shift="lens", model="coarse").collect()
    row = next(row for row in rows.iter_rows(named=True) if "CookeTriplet" in row["params"])
    seen = json.loads(row["params"])
    place = {name: seen[name] for name in ("lens", "field", "azimuth")}
    answer = client.get("lens", params={"run": key, "image": row["sample_id"], **place}).json()
    assert answer["models"]["coarse"]["conf"] == row["conf"]
    assert answer["place"]["mtf50"] == seen["mtf50"]
    (entry,) = Library([tmp_path]).runs()
    number = entry.opened().images["image_id"].index_of(row["image_id"])
    assert number is not None
    assert np.array_equal(pixels(base64.b64decode(answer["image"].partition(",")[2])), entry.image(number))
    place |= {"field": 0.7, "azimuth": 0}
    answer = client.get("lens", params={"run": key, "image": row["sample_id"], **place}).json()
    kernel = store.load(store.builtin(), "CookeTriplet").arrays["kernels"][kernel_index(0.7, 0)]
    for name, axis in (("radial", 1), ("tangential", 2)):
        expected = np.abs(np.fft.rfft(kernel.astype(float).sum(axis), 512))[:, ::8]
        np.testing.assert_allclose(answer["mtf"][name], expected / expected[:, :1], atol=2e-3)
    for wrong in (
        {"lens": "../../etc/passwd"},
        {"field": 0.95},
        {"azimuth": "nan"},
        {"field": ""},
        {"error": "jpeg", "size": 1},
        {"error": "decentre", "size": 1e9},
    ):
        refused = client.get("lens", params={"run": key, "image": row["sample_id"], **place, **wrong})
        assert (refused.status_code, bool(refused.json()["error"])) == (422, True)


def test_a_lens_with_an_error_shows_the_image_of_the_dial(
    client: httpx.Client, key: str, workbench: Workbench
) -> None:
    sample = client.get("shifts", params={"run": key}).json()["samples"][0]["id"]
    of = {"run": key, "image": sample}
    shown = client.get("lens", params={**of, "error": "decentre", "size": 20}).json()
    turned = client.get("turn", params={**of, "at": '{"decentre": 20}'}).json()
    assert (shown["image"], shown["models"], shown["point"]) == (
        turned["image"],
        turned["models"],
        turned["point"],
    )
    designed = client.get("lens", params={**of, "error": "decentre", "size": 1}).json()
    assert np.sum(shown["mtf"]["radial"]) < np.sum(designed["mtf"]["radial"])


def test_a_map_has_the_principal_components_of_the_features(
    client: httpx.Client, key: str, workbench: Workbench
) -> None:
    query = json.dumps({"where": [["shift", "is", "gaussian_noise"]]})
    found = client.get("embedding", params={"run": key, "q": query, "model": "classify"}).json()
    assert found["total"] == len(found["points"]) == 40
    entry = workbench.library.run(key)
    _, features = classify([entry.image(point[0]) for point in found["points"]])
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    values, axes = np.linalg.eigh(np.cov(features.astype(float).T))
    np.testing.assert_allclose(found["share"], values[:-3:-1] / values.sum(), atol=1e-4)
    placed = (features - features.mean(0)) @ axes[:, :-3:-1]
    shown = np.array([point[2:4] for point in found["points"]])
    np.testing.assert_allclose(np.abs(shown), np.abs(placed), atol=1e-3)
    chosen = [point[1] for point in found["points"][:7]]
    inside = json.dumps({"where": [["image_id", "in", chosen]]})
    assert client.get("images", params={"run": key, "q": inside}).json()["total"] == 7
    assert client.get("embedding", params={"run": key, "model": "classify", "by": "x"}).status_code == 422
    without = client.get("embedding", params={"run": key, "model": "coarse"})
    assert without.status_code == 422
    assert "keep" in without.json()["error"]


def test_every_route_needs_the_token_and_refuses_other_sites(served: str, workbench: Workbench) -> None:
    root = served.rsplit("/", 2)[0]
    routes = [route for route in workbench_app(workbench).routes if isinstance(route, Route)]
    assert {route.path for route in routes if "{token}" not in route.path} == {"/favicon.ico"}
    guarded = [route for route in routes if "{token}" in route.path]
    assert len(guarded) == 1 + 1 + len(PAGE_FILES) + len(ANSWERS) + 2
    elsewhere = (
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    )
    with httpx.Client(base_url=root) as bare:
        for route in guarded:
            (method,) = (route.methods or set()) - {"HEAD"}
            ours = route.path.format(token=workbench.token)
            for token in ("wrong", workbench.token[:-1], workbench.token + "x", "%00", "%ff"):
                answer = bare.request(method, route.path.format(token=token))
                assert (answer.status_code, "link is not valid" in answer.text) == (404, True), route.path
            for headers in elsewhere:
                assert bare.request(method, ours, headers=headers).status_code == 403, (route.path, headers)
            for other in {"GET", "POST", "PUT", "DELETE", "OPTIONS"} - {method}:
                assert bare.request(other, ours).status_code == 405, (route.path, other)
        for name in ANSWERS:
            assert bare.get(f"/api/{name}").status_code == 404


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("images", {"run": "no"}),
        ("images", {"count": "100000"}),
        ("images", {"start": "-1"}),
        ("image", {"row": "1e9"}),
        ("image", {"row": "999999"}),
        ("image", {}),
        ("thumbnail", {"row": "0", "side": "90000"}),
        ("trajectory", {"row": "-1"}),
        ("trajectory", {"image": "nobody"}),
        ("turn", {"image": "../../etc/passwd"}),
        ("turn", {"image": "dropped/0"}),
        ("turn", {"image": "x", "at": '{"defocus_disk": NaN}'}),
        ("turn", {"image": "x", "at": "[1]"}),
        ("fails", {"image": "x", "shift": "jpeg", "model": "nobody"}),
        ("map", {"image": "x", "shift": "jpeg", "cells": "1000"}),
    ],
)
def test_what_makes_no_sense_is_a_clear_error(
    client: httpx.Client, key: str, path: str, query: dict[str, str]
) -> None:
    answer = client.get(path, params={"run": key, **query})
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_only_pages_of_a_run_are_sent(client: httpx.Client, key: str, finished: Path) -> None:
    (finished / "report.html").write_text("<p>report</p>")
    sent = client.get("page", params={"run": key, "name": "report.html"})
    assert sent.text == "<p>report</p>"
    # Browsers enforce every policy of an answer: a second one would take scripts and styles from the page.
    assert sent.headers.get_list("Content-Security-Policy") == [PAGE_POLICY]
    for name in ("run.json", "../report.html", "compare.html", "/etc/passwd"):
        assert client.get("page", params={"run": key, "name": name}).status_code == 404


def test_pages_that_belong_to_no_run_are_found_and_nothing_else(
    client: httpx.Client, key: str, finished: Path
) -> None:
    assert client.get("runs").json()["pages"] == []
    beside = finished.parent / "passports" / "m-short"
    beside.mkdir(parents=True)
    (beside / "passport.html").write_text("<p>passport</p>")
    (beside / "notes.html").write_text("private")
    (beside / "report.html").symlink_to(beside / "nowhere")
    (beside.parent / "elsewhere.html").write_text("elsewhere")
    (beside / "compare.html").symlink_to(beside.parent / "elsewhere.html")
    (found,) = client.get("runs").json()["pages"]
    assert (found["folder"], found["pages"]) == (str(beside), ["passport.html"])
    sent = client.get("page", params={"run": found["key"], "name": "passport.html"})
    assert sent.text == "<p>passport</p>"
    for of, name in (
        (found["key"], "compare.html"),
        (found["key"], "notes.html"),
        (key, "passport.html"),
        ("", "passport.html"),
    ):
        assert client.get("page", params={"run": of, "name": name}).status_code == 404
    shutil.rmtree(beside.parent)


def test_a_run_that_has_just_begun_says_so(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "begun", ignore=shutil.ignore_patterns("predictions"))
    (run,) = Library([tmp_path]).runs()
    about = run.summary()
    assert (about["error"], about["models"]) == ("no predictions yet", ["classify", "coarse"])


def test_images_have_their_clean_image_and_severity_in_words(client: httpx.Client, key: str) -> None:
    query = json.dumps({"where": [["shift", "is", "defocus_disk"], ["severity", "is", 4]]})
    found = client.get("images", params={"run": key, "q": query}).json()["images"]
    assert {image["words"] for image in found} == {"4 px out of focus"}
    for image in found:
        trajectory = client.get("trajectory", params={"run": key, "row": image["row"]}).json()["images"]
        (clean,) = [other["row"] for other in trajectory if other["shift"] == "clean"]
        assert image["clean"] == clean
        assert image["words"] in {other["words"] for other in trajectory}


@pytest.mark.slow
def test_ten_users_at_once_are_all_answered(served: str, key: str) -> None:
    """Each user scrolls, filters, opens a trajectory and turns two shifts, all at the same time."""
    queries = [json.dumps({"where": [["conf coarse", "at least", 0.05 * user]]}) for user in range(10)]
    with httpx.Client(base_url=f"{served}api/", timeout=300) as one:
        sample = one.get("shifts", params={"run": key}).json()["samples"][0]["id"]
        expected = [one.get("images", params={"run": key, "q": query}).json() for query in queries]

    def work(user: int) -> list[float]:
        taken: list[float] = []
        with httpx.Client(base_url=f"{served}api/", timeout=300) as mine:
            for step in range(4):
                at = json.dumps({"defocus_disk": 1.0 + user / 10 + step, "gaussian_noise": 0.1})
                begun = time.perf_counter()
                answers = [
                    mine.get("images", params={"run": key, "q": queries[user]}),
                    mine.get("thumbnail", params={"run": key, "row": 8 * step + user % 8}),
                    mine.get("trajectory", params={"run": key, "row": user}),
                    mine.get("turn", params={"run": key, "image": sample, "at": at}),
                ]
                taken.append(time.perf_counter() - begun)
                assert [answer.status_code for answer in answers] == [200] * 4
                assert answers[0].json() == expected[user]
                assert answers[3].json()["severities"] == json.loads(at)
        return taken

    with ThreadPoolExecutor(10) as users:
        taken = [seconds for mine in users.map(work, range(10)) for seconds in mine]
    assert len(taken) == 40
