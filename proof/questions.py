"""The questions of ``sorites ask``: does every example run as it stands, and does it answer its question?

Types every example in a folder of its own below build/questions, which ``python -m tools.answers`` draws; some at a
time, because a busy machine does not change the CPU time by which they are measured. An example holds if all its
commands end with 0 and its answer is what the page says: numbers are counted again from the predictions, pages have
the section, files can be read. It may take twice as long as the page says, in minutes alone on two cores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image

from proof._examples import Answer, typed
from proof._lines import Line
from sorites.apps.asking import Question, questions

Rows = list[dict[str, str]]


AT_ONCE = 2


def run() -> Iterator[Line]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for one, answer in zip(questions(), pool.map(typed, questions()), strict=True):
            yield from judged(one, answer)


def judged(one: Question, answer: Answer) -> Iterator[Line]:
    """Yield whether the example of a question ran, was as fast as stated, and answered the question."""
    failed = [f"{line.line}: {line.err.strip()[-300:]}" for line in answer.typed if line.code]
    yield Line(f"{one.name}: commands that fail", len(failed), " ".join(failed), most=0)
    yield Line(f"{one.name}: minutes", answer.minutes, f"stated {one.minutes}", most=2 * one.minutes)
    try:
        right, why = not failed and holds(answer), ""
    except (ArithmeticError, LookupError, OSError, ValueError, pl.exceptions.PolarsError) as error:
        right, why = False, f"{type(error).__name__}: {error}"
    yield Line(f"{one.name}: answers the question", right, why, least=1)


def holds(answer: Answer) -> bool:
    """Say whether an answer is what its page promises."""
    return bool(CHECKS[answer.name](answer))


def printed(text: str) -> Rows:
    """Read a table that a command printed; a dash is an empty cell."""
    lines = [line for line in text.splitlines() if line.strip()]
    rule = [set(line.strip()) for line in lines].index({"─"})
    heads = re.split(r" {2,}", lines[rule - 1].strip())
    found = []
    for line in lines[rule + 1 :]:
        cells = re.split(r" {2,}", line.strip())
        if len(cells) != len(heads):
            break
        found.append(dict(zip(heads, cells, strict=True)))
    return found


def number(cell: str) -> float | None:
    return None if cell == "–" else float(cell)


def labels(answer: Answer, folder: str) -> pl.DataFrame:
    """Read the predicted labels of a run from its shards."""
    rows = pl.read_parquet(answer.file(folder) / "predictions" / "*.parquet")
    return rows.filter(pl.col("output") == "label")


def same_shares(
    answer: Answer, folder: str, *by: str, command: int = -1, value: str = "value", by_severity: bool = False
) -> bool:
    """Count the correct answers of each group again."""
    by = (*by, "severity") if by_severity else by
    counted = labels(answer, folder).filter(~pl.col("probe").fill_null(False))
    shares = counted.group_by(by).agg(pl.col("correct").cast(pl.Float64).mean(), n=pl.len())
    expected = {tuple(map(_shown, row[:-2])): row[-2:] for row in shares.iter_rows()}
    found = {tuple(row[key] for key in by): row for row in printed(answer.typed[command].out)}
    return expected.keys() == found.keys() and all(
        abs(float(found[key][value]) - share) < 6e-5 and int(found[key]["n"]) == n
        for key, (share, n) in expected.items()
    )


def _shown(value: Any) -> str:
    """Return a key as tables print it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def severities(answer: Answer, folder: str, *, command: int = -1, refined: bool = False) -> bool:
    """Say whether each printed failure severity lies where half of the samples have failed.

    Counts the samples that are misclassified at or below it, and at any lower severity that was tried.
    """
    rows = labels(answer, folder)
    clean = rows.filter(pl.col("shift") == "clean").with_columns(severity=pl.lit(0.0))
    found = printed(answer.typed[command].out)
    for line in found:
        own = pl.concat([clean, rows.filter(pl.col("shift") == line["shift"])])
        failing = own.filter(~pl.col("correct")).group_by("sample_id").agg(pl.col("severity").min())
        n, value = own["sample_id"].n_unique(), number(line["value"])
        if n != int(line["n"]):
            return False
        reached = failing.height / n > 0.5
        if value is None:
            if reached:
                return False
            continue
        slack = 0.06 * max(rows.filter(pl.col("shift") == line["shift"])["severity"]) if refined else 1e-6
        below = failing.filter(pl.col("severity") <= value + slack).height / n
        before = failing.filter(pl.col("severity") < value - slack).height / n
        if not before <= 0.5 <= below:
            return False
    return bool(found)


def between(rows: Rows, low: float, high: float, column: str = "value") -> bool:
    values = [number(row[column]) for row in rows]
    known = [value for value in values if value is not None]
    return bool(known) and all(low <= value <= high for value in known)


def rising(rows: Rows, **of: str) -> bool:
    """Say whether the value at the greatest severity of a group is above that at the least."""
    own = [row for row in rows if all(row[key] == value for key, value in of.items())]
    ordered = sorted(own, key=lambda row: float(row["severity"]))
    return float(ordered[0]["value"]) < float(ordered[-1]["value"])


def page(answer: Answer, file: str, *parts: str) -> bool:
    text = answer.file(file).read_text(encoding="utf-8")
    return all(part in text for part in parts)


def image(path: Path) -> bool:
    with Image.open(path) as found:
        return min(found.size) > 20 and len(np.unique(np.asarray(found.convert("L")))) > 10


def _which_model(a: Answer) -> bool:
    return same_shares(a, "runs/which", "model", "shift", command=1, value="accuracy") and page(
        a, "runs/which/report.html", 'id="ranks"', 'id="curves"'
    )


def _abstain(a: Answer) -> bool:
    curve, area = printed(a.typed[1].out), printed(a.text)
    error = 1 - float(labels(a, "runs/abstain")["correct"].cast(pl.Float64).mean())  # type: ignore[arg-type]
    return abs(float(curve[-1]["value"]) - error) < 1e-4 and float(area[0]["value"]) < error / 2 + 1e-9


def _threshold(a: Answer) -> bool:
    rows = printed(re.sub(r"(?m)^( (?:all|clean) +)(?= )", r"\1 x ", a.text))
    rates = {row["shift"]: row for row in rows}
    return a.file("guard/guard.onnx").is_file() and float(rates["clean"]["alarm"]) < float(
        rates["all"]["alarm"]
    )


def _sets(a: Answer) -> bool:
    clean = next(row for row in printed(a.text) if row["shift"] == "clean")
    return 0.7 <= float(clean["value"]) <= 1 and int(clean["n"]) == 48


def _imported(a: Answer) -> bool:
    return same_shares(a, "runs/made", "model", "shift") and same_shares(a, "runs/imported", "model", "shift")


def _trained(a: Answer) -> bool:
    rows = labels(a, "runs/judged").filter(pl.col("shift") == "clean")
    return float(rows["correct"].cast(pl.Float64).mean()) > 0.3  # chance is 0.1


def _compared(a: Answer) -> bool:
    """Count the drop of each shift again."""
    rows = labels(a, "runs/pair").with_columns(pl.col("correct").cast(pl.Float64))
    counted = rows.group_by("shift", "model").agg(pl.col("correct").mean()).pivot("model", index="shift")
    drops = {row["shift"]: row["full"] - row["int8"] for row in counted.to_dicts()}
    found = {row["dial"]: float(row["drop"]) for row in printed(a.text) if row["dial"] != "all"}
    return found.keys() == drops.keys() and all(abs(found[key] - drops[key]) < 1e-4 for key in drops)


def _distances(a: Answer) -> bool:
    """Each test image of CIFAR-10 has both cosine distances, and as many lie in each level as printed."""
    rows = pl.read_parquet(a.file("distance"))
    counted = (
        rows.filter(pl.col("cov_level") == 1).group_by("sem_level").len().sort("sem_level")["len"].to_list()
    )
    found = next(row for row in printed(a.text) if row["images"] == "cov 1")
    both = rows.select("semantic", "covariate").to_numpy()
    inside = bool(both.min() >= 0 and both.max() <= 2)
    return rows.height == 10_000 and inside and counted == [int(found[f"sem {i}"]) for i in range(1, 9)]


def _arms(a: Answer) -> bool:
    """Training with blurs of lenses gains much where a test image is blurred by one."""
    found = re.search(r"largest gain in optics at severity \d \+([\d.]+) points", a.text)
    gains = pl.read_csv(a.file("arms/gains.csv"))
    return (
        found is not None and float(found[1]) > 5 and gains.height > 0 and page(a, "arms/arms.html", "optics")
    )


def _written(a: Answer) -> bool:
    files = [*a.folder.glob("shifted/**/*.png")]
    return len(files) == 12 and all(map(image, files)) and any(a.folder.glob("shifted/*.parquet"))


def _few(a: Answer) -> bool:
    """Each accuracy is that of the table, and the drop that would have been detected is that of a wide interval."""
    found = {row["dial"]: row for row in printed(a.text)}
    return (
        same_shares(a, "runs/few", "model", "shift", command=1) and float(found["clean"]["detectable"]) > 0.2
    )


def _selected(a: Answer) -> bool:
    """No selected image is one that both models classify correctly."""
    rows = labels(a, "runs/hard").group_by("image_id").agg(pl.col("correct").all())
    easy = set(rows.filter("correct")["image_id"])
    chosen = pl.read_csv(a.file("hard.csv"))["image_id"].to_list()
    return 0 < len(chosen) <= 40 and not easy & set(chosen)


CHECKS: dict[str, Callable[[Answer], Any]] = {
    "own-images": lambda a: (
        labels(a, "runs/mine")["sample_id"].n_unique() == 12
        and page(a, "runs/mine/report.html", 'id="curves"', "jpeg")
    ),
    "which-model": _which_model,
    "how-far": lambda a: severities(a, "runs/far", refined=True),
    "does-it-know": lambda a: (
        between(printed(a.text), 0, 1) and rising(printed(a.text), scorer="msp", shift="contrast")
    ),
    "abstain": _abstain,
    "threshold": _threshold,
    "threshold-holds": lambda a: "alarm rate: no change found" in a.text and "60 images" in a.text,
    "which-lens": lambda a: (
        len(printed(a.typed[0].out)) == len(printed(a.text)) == 15 and between(printed(a.text), 0, 1)
    ),
    "lens-tolerance": lambda a: severities(a, "runs/tolerance"),
    "camera-setting": lambda a: (
        {"best", "worst", "average", "auto"} == {row["what"] for row in printed(a.text)}
    ),
    "quantised": _compared,
    "ci-gate": lambda a: "gate: passed" in a.typed[-1].out + a.typed[-1].err and page(a, "gate.html", "drop"),
    "differ": lambda a: page(a, "compare.html", "<img") and image(a.file("sheet.png")),
    "why-changed": lambda a: page(a, "runs/why/report.html", 'id="explanations"'),
    "slices": lambda a: between(printed(a.text), 0, 1, "q"),
    "train-robust": _trained,
    "augmentation-helps": _arms,
    "jpeg": lambda a: severities(a, "runs/jpeg", refined=True),
    "weather": lambda a: (
        between(printed(a.typed[1].out), 0, 2.5)
        and page(a, "runs/weather/report.html", 'id="curves"', "cm/h")
    ),
    "calibration": lambda a: (
        same_shares(a, "runs/calibrated", "model", "shift", command=1, value="accuracy", by_severity=True)
        and {row["method"] for row in printed(a.text)} == {"none", "temperature"}
    ),
    "prediction-sets": _sets,
    "which-scorer": lambda a: (
        {row["metric"] for row in printed(a.typed[1].out)} >= {"auroc", "fpr95_id_pos", "fpr95_ood_pos"}
        and page(a, "leaderboard.html", "energy", "msp")
    ),
    "dataset-distance": _distances,
    "import-predictions": _imported,
    "mce": lambda a: {row["model"]: float(row["value"]) for row in printed(a.text)}["lite0"] == 1,
    "summary": lambda a: page(a, "passports/small/passport.html", "lite0") and "values recomputed" in a.text,
    "by-hand": lambda a: a.typed[-1].out.startswith("workbench: http://127.0.0.1:"),
    "write-images": _written,
    "in-my-pipeline": lambda a: a.text.count("(4, 3, 224, 224)") == 2 and image(a.file("batch.png")),
    "own-shift": lambda a: severities(a, "runs/own") and image(a.file("mine.png")),
    "cost": lambda a: (
        re.search(r"^passes +744\b", a.text, re.M) is not None
        and re.search(r"^time +\d+ (second|minute)", a.text, re.M) is not None
        and re.search(r"^price +\d+\.\d\d at 2\.5 per hour", a.text, re.M) is not None
    ),
    "hugging-face": lambda a: same_shares(a, "runs/hf", "model", "shift"),
    "contexts": lambda a: between(printed(a.text), -1, 1),
    "diffusion": lambda a: labels(a, "runs/slider")["severity"].n_unique() > 2,
    "detector": lambda a: (
        between(printed(a.typed[1].out), 0, 1)
        and {"Cls", "Loc", "Miss"} <= {row["error"] for row in printed(a.text)}
    ),
    "which-shifts": lambda a: (
        {"lens_drops", "jpeg", "rotation"} <= {line.split()[0] for line in a.typed[0].out.splitlines()}
        and image(a.file("drops.png"))
    ),
    "how-many": _few,
    "python": lambda a: page(a, "accuracy.html", "plotly") and page(a, "report.html", 'id="curves"', "jpeg"),
    "other-tools": lambda a: (
        pl.read_csv(a.file("tables/predictions.csv")).height == labels(a, "runs/made").height
        and page(a, "tables/predictions.csv", "lite0", "jpeg")
    ),
    "large-runs": lambda a: "nothing to do" in a.typed[1].out and "complete" in a.text,
    "attack": lambda a: same_shares(a, "runs/attacked", "model", "shift", by_severity=True),
    "paper": lambda a: (
        "optics_bench" in a.typed[0].out
        and "@" in a.typed[1].out
        and same_shares(a, "runs/paper", "shift", by_severity=True)
    ),
    "annotate": _selected,
    "collect": lambda a: "truck in rain" in a.text and "nothing was searched" in a.text + a.typed[0].err,
    "install": lambda a: all(part in a.text for part in ("sorites", "extras:", "where models run:")),
}
