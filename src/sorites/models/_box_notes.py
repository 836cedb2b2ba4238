"""Say in words how a detector's file was understood; or why it was not understood, and what to write."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Collection, Mapping
from pathlib import Path

from sorites.models._box_config import BoxConfig, Classes
from sorites.models._box_input import Size
from sorites.models._box_layouts import Graph, Layout
from sorites.models._ends import GraphInput

Shape = tuple[int, ...]


def say(text: str) -> None:
    """Tell the user something, once per process and not in the workers of a run."""
    if multiprocessing.parent_process() is None:
        _say(text)


@functools.cache
def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


def understood(
    name: str, layout: Layout, config: BoxConfig, classes: Classes, ends: GraphInput, size: Size, shapes: Mapping[str, Shape]
) -> str:
    """Return the sentences that say how a detector's graph is fed and read."""
    given = ", ".join(f"{output} {' x '.join(map(str, shape))}" for output, shape in shapes.items())
    fill = f", filled with {config.fill}" if config.fit != "squash" else ""
    pixels = "antialiased " if config.antialias else ""
    normal = (
        "0..1"
        if config.std == (1, 1, 1)
        else "0..255"
        if config.std == (1 / 255,) * 3
        else f"less {config.mean} over {config.std}"
    )
    suppressed = "no NMS added" if config.nms is None else f"class-wise NMS at IoU {config.nms:g}"
    return (
        f"{name} is read as layout {layout.name}: {layout.about} ({given}).\n"
        f"  input {size[0]} x {size[1]}: {config.fit}{fill}, {pixels}{config.filter}, {config.channels.upper()} {normal}\n"
        f"  classes: {classes.about}; scores from {config.score:g} up, {suppressed}, at most {config.most} boxes\n"
    ).rstrip()


def refusal(path: Path, graph: Graph, config: BoxConfig, layouts: Collection[str]) -> str:
    """Return why a graph's outputs are none of the layouts, and what to write into the file beside it."""
    came = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in graph.outputs.items())
    wanted = "boxes" if config.layout is None else f"boxes in the layout {config.layout}"
    example = f'{{"layout": "{config.layout or "v8"}", "labels": ["name", ...]}}'
    return (
        f"{path}: wanted {wanted}, got outputs {came}{_guess(graph)}. If they are boxes, say how they are laid out: write "
        f"{example} into {path}.json; the layouts are {', '.join(layouts)} (docs/models.md)."
    )


def _guess(graph: Graph) -> str:
    if any(array.ndim == 4 for array in graph.outputs.values()):
        return ", which look like masks (segmentation)"
    columns = {side for array in graph.outputs.values() if array.ndim == 3 for side in array.shape[1:]}
    if 56 in columns:
        return ", which look like key points (pose)"
    if graph.classes is not None and 5 + graph.classes in columns and len(graph.outputs) == 1:
        return ", which look like turned boxes (OBB)"
    if graph.classes is not None and len(graph.outputs) == 1:
        return f", which do not fit {graph.classes} classes"
    return ""
