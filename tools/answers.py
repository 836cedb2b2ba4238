"""Draw the pictures of the answers to the questions: ``python -m tools.answers [NAME]...``.

Reads what ``python -m proof questions`` left in build/questions and writes docs/answers/NAME.webp: charts, parts of
pages as Chromium shows them, images, or the printed table. Run the proof first, or ``python -m tools.answers --play
NAME`` to type one example anew.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from proof._examples import Answer, kept, served, typed

import sorites
from sorites.apps.asking import questions

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "answers"
# Width of pictures, and the greatest height, px.
WIDTH, HEIGHT = 920, 640
STYLE = (
    "body{margin:0;background:#fff;color:#1d2430;font:14px/1.45 'DejaVu Sans Mono',monospace}"
    "pre{margin:0;padding:16px 18px;white-space:pre;width:max-content;min-width:560px}b{color:#0b5cad}"
)


@dataclass(frozen=True)
class Chart:
    """The chart of a metric of a run."""

    run: str
    metric: str
    by: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part of a page that an example wrote, as a browser shows it."""

    file: str
    selector: str = "main"
    wide: int = 1100


@dataclass(frozen=True)
class Served:
    """A page that the last command serves, once an element of it is shown."""

    page: str
    waits_for: str


@dataclass(frozen=True)
class Images:
    """Image files that an example wrote, side by side."""

    pattern: str
    most: int = 6
    side: int = 0


@dataclass(frozen=True)
class Printed:
    """Lines that a command printed; the first ``skip``, which may name local paths, are left out."""

    command: int = -1
    lines: int = 22
    skip: int = 0


Picture = Chart | Part | Served | Images | Printed

PRINTED = Printed()
FIGURES: dict[str, Picture] = {
    "own-images": Part("runs/mine/report.html", "#curves"),
    "which-model": Part("runs/which/report.html", "#curves"),
    "how-far": Chart("runs/far", "failure_severity"),
    "does-it-know": Chart("runs/knows", "auroc", ("scorer", "shift", "severity"), {"framework": "drift"}),
    "abstain": Chart("runs/abstain", "risk_coverage", ("model", "scorer")),
    "which-lens": Chart("runs/lens", "lens_accuracy"),
    "lens-tolerance": Chart("runs/tolerance", "failure_severity"),
    "quantised": Part("compare.html"),
    "ci-gate": Part("gate.html"),
    "differ": Images("sheet.png", 1),
    "why-changed": Part("runs/why/report.html", "#explanations"),
    "detector": Chart("runs/boxes", "map", ("model", "shift", "severity")),
    "augmentation-helps": Part("arms/arms.html"),
    "weather": Part("runs/weather/report.html", "#curves"),
    "calibration": Chart("runs/calibrated", "calibration_error", ("model", "shift", "severity")),
    "which-scorer": Part("leaderboard.html"),
    "import-predictions": Chart("runs/imported", "accuracy", ("model", "shift", "severity")),
    "summary": Part("passports/small/passport.html", "body"),
    "by-hand": Served("#/turn", ".answers article"),
    "write-images": Images("shifted/**/*.png", 6, 150),
    "in-my-pipeline": Images("batch.png", 1),
    "own-shift": Images("mine.png", 1),
    "diffusion": Chart("runs/slider", "accuracy", ("model", "shift", "severity")),
    "which-shifts": Images("drops.png", 1),
    "how-many": Part("compare.html"),
    "python": Part("accuracy.html", ".plotly-graph-div"),
    "attack": Chart("runs/attacked", "accuracy", ("model", "shift", "severity")),
    "paper": Chart("runs/paper", "accuracy", ("model", "shift", "severity")),
    "other-tools": Printed(1),
    "large-runs": Printed(1),
    "install": Printed(skip=4),
    "contexts": Images("composites/**/*.png", 6, 150),
}


def main() -> int:
    """Draw the pictures of the named questions, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tools.answers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="questions; default: all")
    parser.add_argument("--play", action="store_true", help="type the examples first")
    asked = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with _browser() as browser:
        for one in questions():
            if asked.names and one.name not in asked.names:
                continue
            answer = typed(one) if asked.play else kept(one.name)
            image = drawn(answer, FIGURES.get(one.name, PRINTED), browser)
            image.save(PICTURES / f"{one.name}.webp", quality=72, method=6)
            print(
                f"{one.name}: {image.width} x {image.height}, {answer.minutes:.1f} minutes, stated {one.minutes}"
            )
    return 0


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("pictures are drawn by Chromium. Install it: apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def drawn(answer: Answer, picture: Picture, browser: Any) -> Image.Image:
    """Return the picture of an answer, in at most WIDTH x HEIGHT px."""
    if isinstance(picture, Chart):
        return _fitted(_chart(answer, picture, browser))
    if isinstance(picture, Part):
        return _fitted(_shot(browser, answer.file(picture.file).resolve().as_uri(), picture))
    if isinstance(picture, Served):
        with served(answer.typed[-1].line, answer.folder) as address:
            return _fitted(_shot(browser, address + picture.page, Part("", "body", 1100), picture.waits_for))
    if isinstance(picture, Images):
        return _fitted(_montage(answer, picture))
    return _fitted(_printed(answer, picture, browser))


def _fitted(image: Image.Image) -> Image.Image:
    image = image.convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    return image.crop((0, 0, image.width, min(image.height, HEIGHT)))


def _chart(answer: Answer, picture: Chart, browser: Any) -> Image.Image:
    by = {"by": list(picture.by)} if picture.by else {}
    rows = sorites.read(answer.file(picture.run))
    figure = getattr(sorites, picture.metric)(rows, **by, **picture.options).plot()
    page = answer.file("chart.html")
    figure.update_layout(width=WIDTH)
    page.write_text(figure.to_html(include_plotlyjs=True, config={"displayModeBar": False}), encoding="utf-8")
    return _shot(browser, page.resolve().as_uri(), Part("", ".plotly-graph-div", WIDTH + 40), ".main-svg")


def _shot(browser: Any, address: str, part: Part, waits_for: str = "body") -> Image.Image:
    page = browser.new_page(viewport={"width": part.wide, "height": 900}, bypass_csp=True)
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_selector(waits_for)
    page.wait_for_load_state("networkidle")
    page.add_style_tag(content="nav { position: static !important; }")  # else it hides the top of a part
    image = Image.open(io.BytesIO(page.locator(part.selector).first.screenshot()))
    page.close()
    return image


def _montage(answer: Answer, picture: Images) -> Image.Image:
    files = sorted(answer.folder.glob(picture.pattern))
    files = files[:: max(1, len(files) // picture.most)][: picture.most]
    images = [Image.open(file).convert("RGB") for file in files]
    if picture.side:
        images = [image.resize((picture.side, picture.side)) for image in images]
    sheet = Image.new("RGB", (sum(i.width + 4 for i in images) - 4, max(i.height for i in images)), "white")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + 4
    return sheet


def _printed(answer: Answer, picture: Printed, browser: Any) -> Image.Image:
    """Draw a command with what it printed, as in a terminal."""
    shown = answer.typed[picture.command]
    lines = shown.out.strip("\n").splitlines()[picture.skip :]
    rest = [f"… {len(lines) - picture.lines} more lines"] if len(lines) > picture.lines else []
    text = "\n".join([*lines[: picture.lines], *rest])
    page = answer.file("printed.html")
    page.write_text(
        f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>"
        f"<pre><b>$ {html.escape(shown.line)}</b>\n{html.escape(text)}</pre>",
        encoding="utf-8",
    )
    return _shot(browser, page.resolve().as_uri(), Part("", "pre", WIDTH))


if __name__ == "__main__":
    raise SystemExit(main())
