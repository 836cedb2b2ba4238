"""Sections on camera settings: maps of ISO and shutter, exposure control, and contact sheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.metrics.camera import AUTO, DIALS, POLICIES, with_settings
from sorites.reports.components.camera import (
    dials,
    grids,
    interval_of,
    requested,
    setting_maps,
    setting_sentences,
    shutter_text,
)
from sorites.reports.components.images import SIDE, data_uri
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    grid,
    join,
    number,
    percent,
    picked,
    points,
    tag,
)
from sorites.reports.components.scorers import estimate
from sorites.reports.section import Section, add_section, split_by_split
from sorites.reports.view import View

Row = Mapping[str, Any]
LIGHTS = ("on", "off", "both", "difference")
POLICY_NAMES = {
    "auto": "automatic",
    "average": "random setting",
    "fixed": "best single setting, learnt on other images",
    "oracle": "best for each image",
}


@add_section(order=34)
@split_by_split
def exposure(view: View) -> Section | None:
    """Maps per model, aperture and light, and tables; absent without a camera grid."""
    settings = view.compute(metrics.setting_accuracy).filter(pl.col("n") > 0)
    maps = {
        model: drawn
        for model in view.models
        if (drawn := setting_maps(settings.filter(pl.col("model") == model), interval_of))
    }
    if not maps:
        return None
    lead = (
        "Accuracy in % at each ISO and shutter time, one map per aperture and light; darker blue is better,"
        " and"
        " hovering shows the interval and n. Automatic exposure is shown beside the maps."
    )
    tables = [tag("article", part, cls="card") for part in (_ends(view), _control(view)) if part]
    below = tag("div", tag("div", *tables, cls="stack"), cls="below") if tables else EMPTY
    body = join([setting_sentences(view, settings), picked(view.named("exposure"), "Model", maps), below])
    return Section("Which camera settings suit the model?", body, "Exposure", lead)


def _ends(view: View) -> Html:
    rows = {(r["model"], r["light"], r["what"]): r for r in view.compute(metrics.setting_table).to_dicts()}
    lines = []
    for model in view.models:
        for light in LIGHTS:
            ends = [rows.get((model, light, what)) for what in ("best", "worst", "average", "auto")]
            if any(ends):
                lines.append([model, light, *(_end(row, light) for row in ends)])
    caption = (
        "Accuracy at the best, worst and average setting and with automatic exposure. "
        "The difference is |on − off|; the smallest is best."
    )
    return (
        grid(["", "lamp", "best", "worst", "average", "automatic"], lines, text=2, caption=caption)
        if lines
        else EMPTY
    )


def _end(row: Row | None, light: str) -> Html:
    if row is None or row["value"] is None:
        return tag("span", DASH)
    if light == "difference":
        text, more = points(row["value"]).removeprefix("+"), []
    else:
        text, more = percent(row["value"]), [interval_of(row)]
    lines = [*([dials(row)] if row["iso"] is not None else []), *more]
    return join([text, *(tag("small", line) for line in lines)])


def _control(view: View) -> Html:
    rows = {(r["model"], r["policy"]): r for r in view.compute(metrics.camera_control).to_dicts()}
    lines = [
        [model, POLICY_NAMES[policy], estimate(row), _gain(row), count(row["n"])]
        for model, policy in _pairs(view.models)
        if (row := rows.get((model, policy)))
    ]
    caption = (
        "Accuracy for each way to choose the setting, and the gain over automatic exposure on the same images"
    )
    return (
        grid(["", "setting chosen", "accuracy", "gain", "n"], lines, text=2, caption=caption)
        if lines
        else EMPTY
    )


def _pairs(models: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((model, policy) for model in models for policy in POLICIES)


def _gain(row: Row) -> Html:
    if row["gain"] is None:
        return tag("span", DASH)
    return join(
        [points(row["gain"]), tag("small", between(points(row["gain_low"]), points(row["gain_high"])))]
    )


# --- Contact sheet: one image at every camera setting, and images that only automatic exposure gets wrong

# Maximum size of the image pairs below the sheet, in bytes.
PAIR_BYTES = 500_000
# Sheets of more images are drawn at half size.
MAX_FULL_SIZE = 60
# Maximum number of pairs per model.
MAX_PAIRS = 4

ContactRow = dict[str, Any]


@add_section(order=36)
@split_by_split
def contact(view: View) -> Section | None:
    """Images of a camera grid; absent without available images."""
    if not any(run.image for run in view.runs) or not view.compute(metrics.setting_share).height:
        return None
    rows = judged(view)
    book = Book(view)
    sheet = _sheet(book, rows, view)
    if not sheet:
        return None
    sheets = {model: part for model in view.models if (part := _pairs_of_images(view, book, rows, model))}
    lead = (
        "One image at every camera setting; a green frame is correct, an orange frame misclassified. Below"
        " are"
        " images that the model misclassifies with automatic exposure and classifies correctly with its best"
        " single setting."
    )
    below = tag("div", picked(view.named("contact"), "Model", sheets), cls="below") if sheets else EMPTY
    return Section("What the camera saw", join([sheet, below]), "Contact sheet", lead)


@dataclass
class Book:
    """Images of a camera grid as data URIs; ``left`` counts down the bytes for pairs."""

    view: View
    left: int = PAIR_BYTES

    def figure(self, row: ContactRow, caption: str, side: int = SIDE) -> Html:
        uri = self.uri(row, side)
        edge = "#009e73" if row["correct"] else "#d55e00"
        style = f"border:3px solid {edge};max-width:100%"
        alt = f"{row['sample_id']}, {caption or dials(row)}"
        image = (
            tag("img", src=uri, alt=alt, style=style)
            if uri
            else tag("div", "image not available", cls="gone")
        )
        return tag("figure", image, tag("figcaption", caption))

    def uri(self, row: ContactRow, side: int) -> str | None:
        image = self.view.image(row["run_id"], row["sample_id"], row["shift"], requested(row["params"]))
        return None if image is None else data_uri(image, side)


def judged(view: View) -> pl.DataFrame:
    """Return the evaluated rows of camera grids, with their settings as columns."""
    rows = with_settings(view.table).filter((pl.col("output") == "label") & pl.col("correct").is_not_null())
    return rows.select(
        "run_id", "model", "sample_id", "shift", "params", "correct", "light", "exposure", *DIALS
    ).collect(engine="streaming")


def _sheet(book: Book, rows: pl.DataFrame, view: View) -> Html:
    """Draw the sample that is correct at about half of the settings, which is the most informative."""
    model = next((name for name in view.models if name in set(rows["model"])), None)
    model_rows = rows.filter(pl.col("model") == model)
    shares = model_rows.filter(~AUTO).group_by("sample_id").agg(pl.col("correct").mean())
    if model is None or not shares.height:
        return EMPTY
    sample = shares.sort((pl.col("correct") - 0.5).abs(), "sample_id")["sample_id"][0]
    sample_rows = model_rows.filter(pl.col("sample_id") == sample)
    side = SIDE if sample_rows.height <= MAX_FULL_SIZE else SIDE // 2
    cards = [_page(book, part, light, aperture, side) for (light, aperture), part in _pages(sample_rows)]
    drawn = [card for card in cards if card]
    return (
        join([tag("p", tag("b", model), f" · {sample}"), tag("div", *drawn, cls="cards two")])
        if drawn
        else EMPTY
    )


def _pages(rows: pl.DataFrame) -> list[tuple[tuple[str | None, float | None], pl.DataFrame]]:
    ordered = rows.sort("light", "aperture", descending=[True, False], nulls_last=True)
    parts = ordered.partition_by("light", "aperture", as_dict=True, maintain_order=True)
    return [((key[0], key[1]), part) for key, part in parts.items()]


def _page(book: Book, rows: pl.DataFrame, light: str | None, aperture: float | None, side: int) -> Html:
    if aperture is None:
        shots = rows.to_dicts()[:3]
        body = tag(
            "div",
            *(book.figure(row, "shot " + str(requested(row["params"]).get("shot", ""))) for row in shots),
            cls="frames",
        )
        return tag("article", tag("h3", f"automatic · lamp {light}"), body, cls="card")
    tables = [_grid(book, part, side) for part in grids(rows)]
    return tag("article", tag("h3", f"f/{number(aperture)} · lamp {light}"), *tables, cls="card")


def _grid(book: Book, rows: pl.DataFrame, side: int) -> Html:
    by_setting = {(row["iso"], row["shutter"]): row for row in rows.to_dicts()}
    isos, shutters = (sorted(set(values)) for values in zip(*by_setting, strict=True))
    head = tag(
        "tr", tag("th", "ISO", scope="col"), *(tag("th", shutter_text(s), scope="col") for s in shutters)
    )
    body = []
    for iso in isos:
        cells = [
            tag("td", book.figure(row, "", side) if (row := by_setting.get((iso, s))) else EMPTY)
            for s in shutters
        ]
        body.append(tag("tr", tag("th", count(int(iso)), scope="row"), *cells))
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", *body), cls="heat"), cls="scroll", tabindex="0"
    )


def _pairs_of_images(view: View, book: Book, rows: pl.DataFrame, model: str) -> Html:
    best = [
        r
        for r in view.compute(metrics.setting_table).to_dicts()
        if (r["model"], r["light"], r["what"]) == (model, "both", "best")
    ]
    if not best or best[0]["iso"] is None:
        return EMPTY
    model_rows = rows.filter(pl.col("model") == model)
    correct_rows = model_rows.filter(
        ~AUTO, pl.col("correct"), *(pl.col(name) == best[0][name] for name in DIALS)
    )
    missed = model_rows.filter(AUTO, ~pl.col("correct")).unique(
        ["sample_id", "light"], keep="first", maintain_order=True
    )
    pairs = (
        missed.join(correct_rows, on=["run_id", "sample_id", "light", "model", "shift"], suffix="_kept")
        .sort("sample_id", "light")
        .head(MAX_PAIRS)
    )
    strips: list[Html] = []
    for row in pairs.to_dicts():
        if book.left > 0:
            strips.append(_strip(book, row, dials(best[0])))
            book.left -= len(strips[-1])
    return tag("div", *strips, cls="cards") if strips else EMPTY


def _strip(book: Book, row: ContactRow, setting: str) -> Html:
    correct = {**row, "params": row["params_kept"], "correct": True}
    frames = [book.figure(row, "automatic"), book.figure(correct, setting)]
    what = tag("p", tag("b", row["sample_id"]), tag("span", f"lamp {row['light']}"), cls="what")
    return tag("div", what, tag("div", *frames, cls="frames"), cls="strip")
