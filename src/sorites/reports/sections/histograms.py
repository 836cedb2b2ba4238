"""The section of score histograms: familiar, shifted and unknown pictures on one axis, drawn without a script."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.markup import EMPTY, Html, join, number, percent, several, tag
from sorites.reports.parts.picker import picked
from sorites.reports.parts.scorers import scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

BINS, WIDE, TALL = 40, 400, 120
"""The number of bins, and the width and height of a drawing in its own units."""
POOLS = {
    "ID": ("clean", "#0072b2"),
    "C-OOD": ("shifted", "#e69f00"),
    "S-OOD": ("unknown class", "#d55e00"),
    "familiar": ("right", "#009e73"),
    "strange": ("wrong", "#cc79a7"),
}
"""The name and the colour of each pool."""


@add_section(order=62)
def histograms(view: View) -> Section | None:
    """Two drawings per model and scorer: by the kind of picture, and by whether the model is right."""
    found = [view.compute(metrics.score_histogram, framework=name, bins=BINS) for name in ("kind", "model-specific")]
    parts = {
        scorer: tag("div", *cards, cls="cards two wide") for scorer in scorers(view) if (cards := _cards(view, scorer, found))
    }
    if not parts:
        return None
    lead = (
        "Each group of pictures has the same area, so that few pictures are as visible as many. The further two groups lie "
        "apart, the better a threshold separates them. The first drawing groups pictures by kind, the second by whether the "
        "model is right."
    )
    return Section("How are the scores distributed?", picked("scores", "Scorer", parts), "Scores", lead)


def _cards(view: View, scorer: str, found: list[pl.DataFrame]) -> list[Html]:
    cards = []
    for model in view.models:
        frames = [rows.filter(pl.col("model") == model, pl.col("scorer") == scorer) for rows in found]
        drawn = [_drawing(rows) for rows in frames if rows["pool"].n_unique() > 1]
        if drawn:
            cards.append(tag("article", tag("h3", f"{model} · {scorer}"), tag("div", *drawn, cls="pair"), cls="card"))
    return cards


def _drawing(rows: pl.DataFrame) -> Html:
    pools = [pool for pool in POOLS if pool in set(rows["pool"])]
    top = float(rows["value"].max() or 1)  # type: ignore[arg-type]
    shapes = [_shape(rows.filter(pool=pool), POOLS[pool][1], top) for pool in pools]
    base = Html(f'<line x1="0" y1="{TALL}" x2="{WIDE}" y2="{TALL}" stroke="currentColor" stroke-opacity=".4"/>')
    drawn = tag(
        "svg", *shapes, base, viewBox=f"0 0 {WIDE} {TALL + 1}", preserveAspectRatio="none", role="img", aria_label="Scores"
    )
    ends = [number(rows["left"].min()), "score (right is stranger)", number(rows["right"].max())]  # type: ignore[arg-type]
    keys = [_key(pool, int(rows.filter(pool=pool)["n"][0])) for pool in pools]
    return tag("div", tag("p", *keys, cls="keys"), drawn, tag("p", *(tag("span", end) for end in ends), cls="ends"), cls="scores")


def _key(pool: str, n: int) -> Html:
    name, colour = POOLS[pool]
    return tag("span", tag("i", style=f"background:{colour}"), f"{name} ({several(n, 'picture')})")


def _shape(rows: pl.DataFrame, colour: str, top: float) -> Html:
    """Return the outline of one pool, with a text for hovering over each of its bins."""
    step = WIDE / BINS
    shares = dict(rows.select("bin", "value").iter_rows())
    height = {i: TALL * (1 - shares.get(i, 0.0) / top * 0.96) for i in range(BINS)}
    corners = " ".join(f"L{i * step:.1f},{height[i]:.1f} L{(i + 1) * step:.1f},{height[i]:.1f}" for i in range(BINS))
    outline = Html(
        f'<path d="M0,{TALL} {corners} L{WIDE},{TALL}Z" fill="{colour}" fill-opacity=".22" stroke="{colour}" stroke-width="1.6" '
        'vector-effect="non-scaling-stroke"/>'
    )
    return join([outline, *(_tip(row, step) for row in rows.iter_rows(named=True))]) if rows.height else EMPTY


def _tip(row: dict[str, float], step: float) -> Html:
    name = POOLS[str(row["pool"])][0]
    hover = f"{name}: {percent(row['value'])} between {number(row['left'])} and {number(row['right'])}"
    return tag(
        "rect", tag("title", hover), x=f"{row['bin'] * step:.1f}", y="0", width=f"{step:.1f}", height=TALL, fill="transparent"
    )
