"""The verbs that train models."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli import options
from sorites.cli.output import say
from sorites.cli.train_arms import arms

if TYPE_CHECKING:
    from sorites.models._trained_folder import Record

app = typer.Typer(no_args_is_help=True, help="Train models by recipes: augmentations, heads, fine-tuning.")


@app.callback()
def _train() -> None:
    """Train models by recipes: augmentations, heads, fine-tuning."""


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help='A recipe from "sorites list recipes" (NAME, or NAME@VARIANT), or the path of a .toml file.'
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the trained model.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="SPEC",
            help="Begin with this model: small, lite0, timm:NAME, timm:NAME@WEIGHTS, trained:DIR; with @random after the name, "
            "with random weights.",
        ),
    ] = None,
    source: options.SourceName = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="FILE|found", help="A file of class names, or found: the classes that the source has."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option("--validation", metavar="SHARE|SOURCE", help="Judge by a share of the pictures (0.1), or by this source."),
    ] = None,
    augment: Annotated[
        str | None, typer.Option("--augment", metavar="NAMES", help="Augment with optics, augmix, optics,augmix, cascade, none.")
    ] = None,
    head_only: Annotated[bool | None, typer.Option("--head-only/--all-layers", help="Train only the last layer.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", min=1, help="Train for this many epochs.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Train for this many steps.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", min=1, help="The number of pictures in a batch.")] = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the recipe: optimiser.lr=0.01. May be repeated."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; the default is a GPU where there is one.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="The number of threads that decode pictures ahead.")
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option("--checkpoint-seconds", metavar="S", min=0, help="Write a checkpoint at least this often.")
    ] = 60.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Train a model by a recipe.

    Reads a recipe and its pictures; writes a folder that "trained:DIR" names
    as a model, with the page train.html. Type the same command again to
    continue a training that was stopped: it ends with the same weights.
    """
    from sorites.models._trained_folder import read_record
    from sorites.progress import told_bars
    from sorites.reports.training_page import training_page
    from sorites.training import history
    from sorites.training.loop import train
    from sorites.training.recipe import defaults

    changes: dict[str, Any] = {"model": model, "source": source, "labels": labels, "validation": _share(validation)}
    changes |= {"augment": augment, "head_only": head_only, "epochs": epochs, "steps": steps, "batch": batch}
    changes |= {"limit": limit, "seed": seed, **options.key_values(set_, "--set")}
    with told_bars() as bar:
        folder = train(
            recipe,
            out,
            device=device,
            workers=workers,
            checkpoint_seconds=checkpoint_seconds,
            bar=bar,
            say=lambda text: say(f"note: {text}", err=True),
            command=shlex.join(["sorites", *sys.argv[1:]]),
            **changes,
        )
    record = read_record(folder)
    training_page(record.model_dump(mode="json"), history.read(folder), folder / "train.html", defaults())
    _say_result(folder, record)


app.command()(arms)


def _share(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _say_result(folder: Path, record: Record) -> None:
    if record.validation is not None:
        held = {key: 100 * record.validation[key] for key in ("accuracy", "low", "high")}
        interval = f"[{held['low']:.1f}, {held['high']:.1f}]"
        say(f"validation accuracy {held['accuracy']:.1f} %  {interval}  n = {record.validation['n']}")
    say(f"the model is trained:{folder}, its page {folder / 'train.html'}")
