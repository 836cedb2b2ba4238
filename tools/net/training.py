"""Training and what needs gradients: recipes of two steps, arms, attacks and explanations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import sorites
from tools.net import images
from tools.net.hashes import Entry, of_folder, of_leaves, of_plain, of_table, without_ids
from tools.net.home import Task, below, typed

RECIPE = """
model = "small"
steps = 2
batch = 4
label_smoothing = 0.1
[augment.options.optics]
scaled = 4
[data]
source = "folder:fruit"
labels = "found"
validation = 0.34
crop = [0.5, 1.0]
[optimiser]
lr = 0.05
momentum = 0.9
[schedule]
kind = "cosine"
"""
SUITE = """
source = "folder:fruit"
labels = ["apple", "pear", "plum"]
shifts = [{ name = "contrast", severities = [0.5] }]
[frame]
resize = 32
"""
WAYS = {
    "plain": (),
    "optics": ("--augment", "optics"),
    "augmix": ("--augment", "augmix"),
    "cascade": ("--augment", "cascade"),
}
PAGES = ("train.html", "arms.html", "report.html")
NOT_NUMBERS = ("sorites.json", "model.json", "train.json", "run.json", *PAGES)
"""Files with versions, dates, seconds or paths; their keys are listed apart."""


def tasks() -> list[Task]:
    return [
        Task(("training/recipes", "lists/training"), recipes),
        Task(("training/arms",), arms),
        Task(("training/attack", "words/attack"), attacks),
        Task(("training/explain", "words/explain"), explained),
    ]


def prepare() -> None:
    images.fruit("fruit")
    Path("tiny.toml").write_text(RECIPE, encoding="utf-8")
    Path("judge.toml").write_text(SUITE, encoding="utf-8")


def train(out: str, *words: str) -> None:
    typed("train", "run", "tiny.toml", "--out", out, "--device", "cpu", "--workers", "1", *words)


def recipes() -> Iterator[Entry]:
    """Each augmentation, a head alone on a network with weights, and a folder used as a model."""
    prepare()
    for name, words in WAYS.items():
        train(name, *words)
        yield from below(f"training/recipes/{name}", of_trained(Path(name)))
    train("head", "--model", "lite0", "--head-only", "--steps", "1")
    yield from below("training/recipes/head", of_trained(Path("head")))
    yield "lists/training/files", sorted(path.name for path in Path("plain").iterdir())
    judged = sorites.run("judge.toml", models=["trained:plain", "trained:head"], out="run", workers=1)
    yield from below("training/recipes/run", of_table(judged.collect()))


def of_trained(folder: Path) -> Iterator[Entry]:
    """Weights tensor by tensor, the history, and the recipe as it was read; not seconds, versions
    and dates.
    """
    import json

    import polars as pl

    for part, digest in of_folder(folder, *NOT_NUMBERS):
        if "second" not in part and "(columns)" not in part:
            yield part, digest
    for path in sorted(folder.glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        yield f"{path.name}/(keys)", sorted(held)
        if "recipe" in held:
            yield from below("recipe", of_leaves(held["recipe"]))
    for path in sorted(folder.glob("*.parquet")):
        yield f"{path.name}/(columns)", sorted(pl.read_parquet_schema(path))


def arms() -> Iterator[Entry]:
    """Two arms with one seed, judged by one suite."""
    prepare()
    words = (
        "--arms",
        "none,optics",
        "--suite",
        "judge.toml",
        "--limit",
        "3",
        "--device",
        "cpu",
        "--workers",
        "1",
    )
    typed("train", "arms", "tiny.toml", "--out", "arms", *words)
    for path in sorted(Path("arms").rglob("*.csv")):
        yield from below(f"training/arms/{path.name}", of_leaves(_rows(path)))
    for path in sorted(Path("arms").rglob("*.safetensors")):
        if path.name == "model.safetensors":
            yield f"training/arms/{path.parent.name}", of_plain(_tensors(path))


def _rows(path: Path) -> list[dict[str, object]]:
    import polars as pl

    return pl.read_csv(path, infer_schema=False).to_dicts()


def _tensors(path: Path) -> list[tuple[str, str]]:
    from tools.net.hashes import of_file

    return [(name, str(held)) for name, held in of_file(path)]


def attacks() -> Iterator[Entry]:
    """Both norms, and with the loss of each kind."""
    prepare()
    train("net")
    for norm, eps in (("linf", "4/255,.1"), ("l2", "0.5")):
        words = (
            "--source",
            "folder:fruit",
            "--norm",
            norm,
            "--steps",
            "3",
            "--restarts",
            "2",
            "--workers",
            "1",
            "--out",
            norm,
        )
        said = typed("attack", "trained:net", "--eps", eps, *words)
        yield f"words/attack/{norm}", of_plain(without_ids(said))
        yield from below(f"training/attack/{norm}", of_table(sorites.read(norm).collect()))


def explained() -> Iterator[Entry]:
    """Two networks on images where they differ, and one clean and shifted."""
    prepare()
    train("one")
    train("other", "--seed", "3", "--augment", "optics")
    sorites.run("judge.toml", models=["one=trained:one", "other=trained:other"], out="run", workers=1)
    yield (
        "words/explain/two",
        of_plain(typed("explain", "run", "--model", "one", "--model", "other", "--limit", "3")),
    )
    yield (
        "words/explain/one",
        of_plain(typed("explain", "run", "--model", "one", "--limit", "2", "--target", "ground_truth")),
    )
    yield from below("training/explain", of_folder(Path("run", "explanations"), *NOT_NUMBERS))
