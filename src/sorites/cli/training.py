"""The verb that attacks models and keeps the epsilon sweep as a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli import options
from sorites.cli.output import say

if TYPE_CHECKING:
    import polars as pl

    from sorites.models.trained import Record
    from sorites.training.arms import Compared, Member


def attack(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="The models to attack: lite0, timm:NAME@WEIGHTS, trained:DIR. Torch ones only.",
        ),
    ],
    eps: Annotated[
        str,
        typer.Option(
            "--eps",
            metavar="X,...",
            help="The largest moves of an image, with pixels in 0..1: 4/255,.1,.25.",
        ),
    ],
    norm: Annotated[
        str, typer.Option("--norm", metavar="l2|linf", help="The norm by which it moves.")
    ] = "l2",
    losses: Annotated[
        str | None,
        typer.Option(
            "--attack",
            metavar="ce,dlr",
            help=(
                "APGD on the cross-entropy, on the ratio of logits, which needs three classes, or both. The"
                " default is all that "
                "the models have classes for."
            ),
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Steps per start.")] = 100,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts", metavar="N", help="The number of starts tried for an image that stays right."
        ),
    ] = 1,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="NAME[:PATH]",
            help="Attack the clean images of this source, which have labels.",
        ),
    ] = "stamps",
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="A file of class names; the default is the classes of the first model.",
        ),
    ] = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The run folder; the default is runs/attack-ID."),
    ] = None,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Attack models with APGD and keep what each still has right.

    Reads clean images; writes a run folder with a dial per attack, whose
    severity is epsilon. Type the same command again to continue an attack
    that was stopped.
    """
    from sorites.cli.printing import format_frame, print_run_summary
    from sorites.core.progress import bars, recording
    from sorites.core.table import read
    from sorites.training.attack import attack as attack_models
    from sorites.training.attack.run import worst_case

    opened: list[str] = []
    with bars() as bar:
        folder = attack_models(
            model, norm=norm, eps=eps, losses=losses, steps=steps, restarts=restarts, source=source, labels=labels, limit=limit,
            seed=seed, out=out, workers=workers, bar=recording(bar, opened),
        )  # fmt: skip
    say("right under every attack:")
    say(format_frame(worst_case(read(folder)), "table"))
    print_run_summary(folder, worked=bool(opened))


# The verb that explains the images of a run that flipped.


def explain(
    run: options.RunFolder,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A model of the run: two are compared, one is explained clean and shifted.",
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", metavar="NAME", help="Only under this shift; clean is one. May be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="Explain at most N images, in a fair order.")
    ] = 12,
    target: Annotated[
        str, typer.Option("--target", metavar="prediction|ground_truth", help="The class whose evidence is shown.")
    ] = "prediction",
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="[MODEL=]NAME",
            help="Look at this layer; the default is the last one with maps. May be repeated.",
        ),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Show where models looked, for images that flipped.

    Reads a run folder and makes its images again; writes Grad-CAM and
    guided Grad-CAM into RUN/explanations, which the report shows. What is
    there already is not made again. For torch models only.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.explanations import ROOM
    from sorites.training.explain import explain as explain_run

    with bars() as bar:
        found = explain_run(
            run, model or (), shifts=shift or (), limit=limit, target=target, layer=_layers(layer), bar=bar
        )
    if not found:
        say("no image of this run flipped there, or none of them can be made again")
        return
    say(f"explained {len(found)} images in {run / ROOM}\nnext: sorites report {run}")


def _layers(given: list[str] | None) -> str | dict[str, str] | None:
    """Return the words after --layer: one name for all models, or one by model."""
    from sorites.core.errors import SoritesError

    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    named = dict(one.rpartition("=")[::2] for one in given)
    if "" in named:
        raise SoritesError(f"wanted --layer MODEL=NAME where --layer is repeated, got {' '.join(given)}")
    return named


# The verb that trains several arms and compares them.


ARMS = "none,optics,augmix,cascade"
PAGE, GAINS = "arms.html", "gains.csv"


def arms(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help='A recipe from "sorites list recipes", or the path of a .toml file.'
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the comparison.")],
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            metavar="NAMES",
            help=(
                "Augmentations with commas between them. The first is what the others are compared with; a+b"
                " is the chain of "
                "a and b."
            ),
        ),
    ] = ARMS,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Train every arm with this many seeds.")
    ] = 1,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="Judge by this suite, not by those of the recipe. May be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Judge by this many images of a suite's source."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="Train for this many steps.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Train for this many epochs.")
    ] = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set any key of the recipe: optimiser.lr=0.01. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="cpu, cuda, cuda:1; the default is a GPU where there is one."
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Train this many arms at a time.")
    ] = 2,
) -> None:
    """Train arms that differ in their augmentation alone, and compare them.

    Reads a recipe; writes a folder with the trained models, the runs of
    the recipe's suites, gains.csv and the page arms.html. Type the same
    command again to continue one that was stopped.
    """
    from sorites.core.progress import bars, told_bars
    from sorites.training.arms import evaluate, prepare, train_all

    changes: dict[str, Any] = {
        "steps": steps,
        "epochs": epochs,
        "seed": seed,
        **options.key_values(set_, "--set"),
    }
    made = prepare(recipe, out, arms=arms.split(","), seeds=seeds, suites=suite or (), **changes)
    with told_bars() as told:
        train_all(made, device=device, workers=workers, bar=told)
    with bars() as bar:
        evaluated = evaluate(made, limit=limit, bar=bar)
    _write(made, evaluated)


def _write(made: Compared, tables: dict[str, pl.LazyFrame]) -> None:
    """Write the page and the gains, and print them."""
    import polars as pl

    from sorites.io.files import write_bytes
    from sorites.reports.training import arms_page
    from sorites.training.arms import frames

    found = {suite: frames(table, made.members) for suite, table in tables.items()}
    about = {"recipe": made.recipe.name, "arms": made.arms, "seeds": made.seeds}
    about["trainings"] = [_training(made, member) for member in made.members]
    arms_page(about, found, made.out / PAGE)
    gains = pl.concat([own["gains"].with_columns(suite=pl.lit(suite)) for suite, own in found.items()])
    flat = gains.with_columns(pl.col("shifts").list.join(" "))
    write_bytes(flat.write_csv().encode(), made.out / GAINS)
    for line in told(gains):
        say(line)
    say(f"the page is {made.out / PAGE}, all gains are in {made.out / GAINS}")


def told(gains: pl.DataFrame) -> list[str]:
    """Return a line per arm and suite: the gain on clean images, and the largest one with where it is."""
    import polars as pl

    lines = []
    for (arm, suite), rows in gains.group_by("arm", "suite", maintain_order=True):
        clean, moved = (rows.filter((pl.col("family") == "clean") == wanted) for wanted in (True, False))
        said = [f"clean {_gain(row)}" for row in clean.to_dicts()]
        for row in moved.sort("value", descending=True, nulls_last=True).head(1).to_dicts():
            at = "" if row["severity"] is None else f" at severity {row['severity']:g}"
            said.append(
                f"{'most' if row['value'] > 0 else 'no gain; best'} in {row['family']}{at} {_gain(row)}"
            )
        of = f" ({suite})" if gains["suite"].n_unique() > 1 else ""
        lines.append(f"{arm}{of}: {', '.join(said)}")
    return lines


def _gain(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def _training(made: Compared, member: Member) -> dict[str, Any]:
    """Write the page of one training, and return what the page of the arms says of it."""
    from sorites.models.trained import read_record
    from sorites.reports.training import training_page
    from sorites.training import history
    from sorites.training.recipe import defaults

    folder = member.folder(made.out)
    record = read_record(folder)
    page = training_page(
        record.model_dump(mode="json"), history.read(folder), folder / "train.html", defaults()
    )
    held = record.validation or {}
    return {
        "name": member.name,
        "arm": member.arm,
        "seed": member.seed,
        "accuracy": held.get("accuracy"),
        "model": f"trained:{folder}",
        "page": page.relative_to(made.out).as_posix(),
    }


# The verbs that train models.


app = typer.Typer(no_args_is_help=True, help="Train models by recipes: augmentations, heads, fine-tuning.")


@app.callback()
def _train() -> None:
    """Train models by recipes: augmentations, heads, fine-tuning."""


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help='A recipe from "sorites list recipes" (NAME, or NAME@VARIANT), or the path of a .toml file.',
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the trained model.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="SPEC",
            help=(
                "Begin with this model: small, lite0, timm:NAME, timm:NAME@WEIGHTS, trained:DIR; with @random"
                " after the name, "
                "with random weights."
            ),
        ),
    ] = None,
    source: options.SourceName = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|found",
            help="A file of class names, or found: the classes that the source has.",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            "--validation",
            metavar="SHARE|SOURCE",
            help="Judge by a share of the images (0.1), or by this source.",
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            "--augment", metavar="NAMES", help="Augment with optics, augmix, optics,augmix, cascade, none."
        ),
    ] = None,
    head_only: Annotated[
        bool | None, typer.Option("--head-only/--all-layers", help="Train only the last layer.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Train for this many epochs.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="Train for this many steps.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", min=1, help="The number of images in a batch.")
    ] = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set any key of the recipe: optimiser.lr=0.01. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="cpu, cuda, cuda:1; the default is a GPU where there is one."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="The number of threads that decode images ahead."),
    ] = None,
    checkpoint_seconds: Annotated[
        float,
        typer.Option(
            "--checkpoint-seconds", metavar="S", min=0, help="Write a checkpoint at least this often."
        ),
    ] = 60.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Train a model by a recipe.

    Reads a recipe and its images; writes a folder that "trained:DIR" names
    as a model, with the page train.html. Type the same command again to
    continue a training that was stopped: it ends with the same weights.
    """
    from sorites.core.progress import told_bars
    from sorites.models.trained import read_record
    from sorites.reports.training import training_page
    from sorites.training import history
    from sorites.training.loop import train
    from sorites.training.recipe import defaults

    changes: dict[str, Any] = {
        "model": model,
        "source": source,
        "labels": labels,
        "validation": _share(validation),
    }
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
