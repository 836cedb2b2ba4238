"""Every verb that writes a folder, on a very small example: how to run it, or to continue it, and what it must end with."""

from __future__ import annotations

import contextlib
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
from PIL import Image as Pillow
from tests.conftest import CLASSES, scene
from tests.evaluation.conftest import MODULE
from tests.reports.passport.conftest import BATTERY, MODEL
from tests.reports.passport.conftest import SUITE as PASSPORT_SUITE

import sorites
from sorites.analysis.comparison.compare import compare
from sorites.core import table
from sorites.core.errors import Notice
from sorites.io.digests import digest_of, read_sealed
from sorites.io.files import is_temporary
from sorites.io.listed import listed_files
from sorites.suites.suite import parse

ENCODER = """
import numpy as np
from sorites.core import Outputs
LABELS = ["n01440764", "n01443537", "n01484850", "n01491361"]
def other(images):
    return blocks([255 - image for image in images])
def blocks(images):
    cells = [[c.mean(axis=(0, 1)) for r in np.array_split(p / 255, 3) for c in np.array_split(r, 3, axis=1)] for p in images]
    features = np.array(cells, np.float32).reshape(len(images), -1)
    return Outputs(features[:, :4], features)
"""


@dataclass(frozen=True)
class Verb:
    """A verb on a small example.

    Attributes:
        name: Its name.
        run: Runs it, or continues what another process began.
        folder: The folder that it writes.
        prepare: Puts the folder into the state before the verb.
        loose: Files that contain times or noise, and are compared by what does not change.
        check: Checks the folder; raises an error if it is damaged or unfinished.
    """

    name: str
    run: Callable[[], object]
    folder: Path
    prepare: Callable[[], object] = lambda: None
    loose: tuple[str, ...] = ("run.json", "runs/*/run.json")
    check: Callable[[Path], object] = sorites.check


class Home:
    """A folder with images, models and runs that the verbs start from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.photos = root / "photos"
        for i in range(8):
            place = self.photos / CLASSES[i % 4]
            place.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(scene(i, 48 + i, 64)).save(place / f"p{i:02d}.png")
        (root / "guessing_of_faults.py").write_text(MODEL)
        (root / "judge_of_verbs.py").write_text(MODULE)
        (root / "blocks_of_faults.py").write_text(ENCODER)
        (root / "noisy.toml").write_text(PASSPORT_SUITE.format(photos=self.photos, shifts='"jpeg"'))
        (root / "light.toml").write_text(PASSPORT_SUITE.format(photos=self.photos, shifts='"contrast"'))
        (root / "mine.toml").write_text(BATTERY)
        sys.path.append(str(root))
        self.model = "python:guessing_of_faults:logits"

    def evaluate(self, out: Path, model: str = "blocks") -> None:
        suite = parse(
            {
                "name": "killed",
                "limit": 2,
                "frame": {"resize": 32},
                "shifts": [{"name": "contrast", "levels": [1, 5]}],
                "scorers": ["knn(k=2)"],
                "similarity": ["psnr"],
                "refine": 0.3,
            },
            "test",
        )
        where = f"folder:{self.photos}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            sorites.run(
                suite,
                source=where,
                fit=where,
                models=[f"python:blocks_of_faults:{model}"],
                out=out,
                labels=list(CLASSES),
                workers=1,
                keep_features=True,
            )

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return a folder that is made once."""
        folder = self.root / "made" / name
        if not folder.exists():
            make(folder)
        return folder


def verbs(root: Path) -> Iterator[Verb]:
    """Yield the verbs, each with its own folder below ``root``; the caller's working directory is ``root``."""
    home = Home(root)
    base = home.once("run", home.evaluate)

    def fresh(name: str) -> tuple[Path, Callable[[], object]]:
        folder = root / name
        return folder, lambda: _replace(base, folder)

    where, judge = f"folder:{home.photos}", "python:judge_of_verbs:Judge"
    yield Verb("run", lambda: home.evaluate(root / "run"), root / "run")
    options = {"shifts": ["contrast"], "levels": [5], "limit": 2, "labels": list(CLASSES), "workers": 1}
    yield Verb(
        "build",
        lambda: sorites.build(parse({"name": "s"}, "s"), root / "built", source=where, **options),  # type: ignore[arg-type]
        root / "built",
    )
    yield Verb(
        "passport",
        lambda: sorites.passport(home.model, battery="mine.toml", out=root / "passport", limit=2),
        root / "passport",
    )
    folder, prepare = fresh("similarity")
    yield Verb("similarity", lambda f=folder: sorites.similarity(f, ["ssim"]), folder, prepare)  # type: ignore[misc]
    folder, prepare = fresh("distance")
    yield Verb(
        "distance",
        lambda f=folder: sorites.distance(
            str(f), against=where, encoder=judge, k=2, levels=2, engine="local", workers=1
        ),  # type: ignore[misc]
        folder,
        prepare,
    )
    folder, prepare = fresh("filter")
    yield Verb("filter", lambda f=folder: _filter(f, judge), folder, prepare)  # type: ignore[misc]
    folder, prepare = fresh("score")
    yield Verb("score", lambda f=folder: _quiet(sorites.score, f, ["knn(k=1)"]), folder, prepare)  # type: ignore[misc]
    folder, prepare = fresh("compact")
    yield Verb("compact", lambda f=folder: _compact(f), folder, prepare)  # type: ignore[misc]
    yield from _imports(home, base)
    yield from _comparison(home, base)
    yield from _training(home)


def _replace(base: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)


def _quiet(verb: Callable[..., object], *args: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        verb(*args)


def _filter(folder: Path, judge: str) -> None:
    from sorites.analysis.filter.filtering import filter_run

    filter_run(folder, judge, "python:blocks_of_faults:blocks", workers=1)


def _compact(folder: Path) -> None:
    from sorites.evaluation.storage.compact import compact

    compact(folder)


def _imports(home: Home, base: Path) -> Iterator[Verb]:
    from sorites.evaluation.imports.write import import_predictions

    rows = table.read(base).filter(pl.col("output") == "label", ~pl.col("probe")).collect()
    file = home.root / "rows.csv"
    rows.select("sample_id", "shift", "severity", "model", "label", "pred", "conf").write_csv(file)
    out = home.root / "imported" / "run"
    yield Verb("import", lambda: import_predictions([file], "csv", out, labels=list(CLASSES)), out)


def _comparison(home: Home, base: Path) -> Iterator[Verb]:
    from sorites.reports.comparison import write_page

    out = home.root / "compared" / "compare.html"
    other = home.once("other", lambda folder: home.evaluate(folder, "other"))

    def run() -> None:
        out.parent.mkdir(exist_ok=True)
        write_page(compare(base, other), [], out, None)

    yield Verb("compare", run, out.parent, check=lambda folder: sorites.verify(out) if out.exists() else "")


def _training(home: Home) -> Iterator[Verb]:
    from sorites.training.loop import train
    from sorites.training.recipe import parse as recipe

    out = home.root / "trained"
    data = {"source": f"folder:{home.photos}", "labels": "found"}
    plain = recipe({"name": "r", "steps": 2, "batch": 4, "optimiser": {"lr": 0.05}, "data": data}, "r")
    yield Verb(
        "train",
        lambda: train(plain, out, checkpoint_seconds=0),
        out,
        loose=("history.jsonl", "model.json", "train.html"),
    )


@contextlib.contextmanager
def capture(root: Path) -> Iterator[Verb]:
    """Open a virtual studio, and yield its verb."""
    from tests.apps.studio.conftest import GRID, STAGE, capture_of, write_images

    from sorites import core
    from sorites.apps.studio.devices import DeviceOptions, open_devices
    from sorites.apps.studio.folder import CaptureFolder
    from sorites.apps.studio.references import references
    from sorites.core.labels import labels

    space = labels(list(CLASSES[:2]))
    held = references(core.source(f"folder:{write_images(root / 'stage', 1)}", space), space)
    devices = open_devices(DeviceOptions(megapixels=0.06), STAGE)
    folder = CaptureFolder(root / "es", "test", GRID)

    def run() -> None:
        folder.prepare(held)
        capture_of(folder, devices, originals="keep").run(held)

    try:
        yield Verb("capture", run, folder.root, loose=("shots.jsonl", "capture.json", "*.JPEG"))
    finally:
        devices.close()


@contextlib.contextmanager
def collection(root: Path) -> Iterator[Verb]:
    """Open services on loopback, and yield the verb that collects from them."""
    from tests.apps.collecting.web import jpeg, openverse, results, served

    from sorites.apps.collecting.collect import collect
    from sorites.apps.collecting.options import Criteria
    from sorites.apps.collecting.plan import queries_from_texts

    with served() as web:
        urls = [web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(3)]
        web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
        bases = {"openverse": f"{web.url}/v1/images/"}

        def run() -> None:
            queries = queries_from_texts(("ship on grass",))
            collect(
                queries,
                root / "collected",
                services=["openverse"],
                contact="me@example.org",
                options=Criteria(gap=0),
                bases=bases,
            )

        loose = ("journal.jsonl", "images.parquet")
        yield Verb("collect", run, root / "collected", loose=loose)


def content(verb: Verb, name: str, data: bytes) -> object:
    """Return what is compared of a loose file."""
    if name.endswith("run.json"):
        return settled(verb.folder / name)
    if name == "images.parquet":
        return pl.read_parquet(data).drop("fetched").to_dicts()
    if name == "model.json":
        return {key: value for key, value in read_sealed(verb.folder / name, "").items() if key != "files"}
    if name == "shots.jsonl":
        from sorites.sources.captures import photograph_digests

        return sorted(photograph_digests(verb.folder))
    return name


def state(verb: Verb) -> dict[str, object]:
    """Return all files of a verb's folder, as they are compared.

    Temporary files of a killed process belong to nothing; the next verb that claims the folder deletes them.
    """
    from tests.faults.killing import files

    return {
        name: content(verb, name, data) if any(fnmatch(name, loose) for loose in verb.loose) else data
        for name, data in files(verb.folder).items()
        if not name.startswith("replaced/") and not is_temporary(Path(name))
    }


def settled(record: Path) -> dict[str, object]:
    """Return a record in which each file has the one of its accepted digests that it has.

    A process that was killed after it replaced a file, and before it removed the former digest from the list,
    leaves both.
    """
    listed = {}
    for name, accepted in listed_files(record).items():
        path = record.parent / name
        digest = digest_of(path.read_bytes()) if path.exists() else ""
        assert digest in accepted, path
        listed[name] = digest
    return {**read_sealed(record, ""), "files": listed}
