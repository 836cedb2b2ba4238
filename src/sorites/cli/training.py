"""``sorites attack``, ``explain`` and ``train``: adversarial attacks, Grad-CAM and training."""

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
    from sorites.training.arms import Comparison, Member


def attack(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Models to attack: lite0, timm:NAME@WEIGHTS, trained:DIR. Torch models only.",
        ),
    ],
    eps: Annotated[
        str,
        typer.Option(
            "--eps",
            metavar="X,...",
            help="Perturbation sizes, for pixels in 0..1: 4/255,.1,.25.",
        ),
    ],
    norm: Annotated[str, typer.Option("--norm", metavar="l2|linf", help="Norm of the perturbation.")] = "l2",
    losses: Annotated[
        str | None,
        typer.Option(
            "--attack",
            metavar="ce,dlr",
            help=(
                "APGD on the cross-entropy, on the difference of logits ratio (needs three classes), or both;"
                " default: all that the models support."
            ),
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Steps per restart.")] = 100,
    restarts: Annotated[
        int,
        typer.Option("--restarts", metavar="N", help="Number of restarts for images that stay correct."),
    ] = 1,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="NAME[:PATH]",
            help="Source of labelled clean images.",
        ),
    ] = "stamps",
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="A file of class names; default: the classes of the first model.",
        ),
    ] = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The run folder; default: runs/attack-ID."),
    ] = None,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Attack models with APGD.

    Writes a run folder with one shift per attack, whose severity is epsilon.
    Run the same command again to continue after a stop.
    """
    from sorites.cli.printing import format_frame, print_run_summary
    from sorites.core.progress import bars, recording
    from sorites.core.table import read
    from sorites.training.attack import attack as attack_models
    from sorites.training.attack.run import worst_case

    opened: list[str] = []
    with bars() as bar:
        folder = attack_models(
            model,
            norm=norm,
            eps=eps,
            losses=losses,
            steps=steps,
            restarts=restarts,
            source=source,
            labels=labels,
            limit=limit,
            seed=seed,
            out=out,
            workers=workers,
            bar=recording(bar, opened),
        )
    say("correct under every attack:")
    say(format_frame(worst_case(read(folder)), "table"))
    print_run_summary(folder, worked=bool(opened))


def explain(
    run: options.RunFolder,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Model of the run. Two models are compared; one is compared clean and shifted.",
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            "--shift", metavar="NAME", help="Use only this shift; clean counts as one. May be repeated."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="Explain at most N images, in a fixed random order.")
    ] = 12,
    target: Annotated[
        str, typer.Option("--target", metavar="prediction|ground_truth", help="Class to explain.")
    ] = "prediction",
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="[MODEL=]NAME",
            help="Layer to explain; default: the last one with feature maps. May be repeated.",
        ),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Compute Grad-CAM for images whose prediction flipped.

    Recreates the images of a run and writes Grad-CAM and guided Grad-CAM to
    RUN/explanations, which the report shows. Existing files are kept. Torch
    models only.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.explanations import ROOM
    from sorites.training.explain import explain as explain_run

    with bars() as bar:
        explained = explain_run(
            run, model or (), shifts=shift or (), limit=limit, target=target, layer=_layers(layer), bar=bar
        )
    if not explained:
        say("nothing to explain: no image flipped, or the images are not available")
        return
    say(f"explained {len(explained)} images in {run / ROOM}\nnext: sorites report {run}")


def _layers(given: list[str] | None) -> str | dict[str, str] | None:
    """Parse --layer: one name for all models, or one name per model."""
    from sorites.core.errors import SoritesError

    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    named = dict(text.rpartition("=")[::2] for text in given)
    if "" in named:
        raise SoritesError(f"repeated --layer expects MODEL=NAME, got {' '.join(given)}")
    return named


ARMS = "none,optics,augmix,cascade"
PAGE, GAINS = "arms.html", "gains.csv"


def arms(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help='A recipe, from "sorites list recipes", or the path of a .toml file.'
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            metavar="NAMES",
            help=(
                "Comma-separated augmentations. The others are compared with the first; a+b chains a and b."
            ),
        ),
    ] = ARMS,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Number of seeds per arm.")] = 1,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="Evaluate on this suite instead of those of the recipe. May be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help="Evaluate on at most N samples of a suite's source."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="Number of training steps.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Number of training epochs.")
    ] = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key of the recipe: optimiser.lr=0.01. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if available."),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Number of arms to train in parallel.")
    ] = 2,
) -> None:
    """Train models that differ only in their augmentation, and compare them.

    Writes the trained models, the run folders of the recipe's suites,
    gains.csv and the page arms.html. Run the same command again to continue
    after a stop.
    """
    from sorites.core.progress import bars
    from sorites.core.progress import text_bars as told_bars
    from sorites.training.arms import evaluate, prepare, train_all

    changes: dict[str, Any] = {
        "steps": steps,
        "epochs": epochs,
        "seed": seed,
        **options.key_values(set_, "--set"),
    }
    comparison = prepare(recipe, out, arms=arms.split(","), seeds=seeds, suites=suite or (), **changes)
    with told_bars() as training_bar:
        train_all(comparison, device=device, workers=workers, bar=training_bar)
    with bars() as bar:
        tables = evaluate(comparison, limit=limit, bar=bar)
    _write(comparison, tables)


def _write(comparison: Comparison, tables: dict[str, pl.LazyFrame]) -> None:
    """Write the page and gains.csv, and print the gains."""
    import polars as pl

    from sorites.io.files import write_bytes
    from sorites.reports.training import arms_page
    from sorites.training.arms import comparison_tables as frames

    by_suite = {suite: frames(table, comparison.members) for suite, table in tables.items()}
    about = {"recipe": comparison.recipe.name, "arms": comparison.arms, "seeds": comparison.seeds}
    about["trainings"] = [_training(comparison, member) for member in comparison.members]
    arms_page(about, by_suite, comparison.out / PAGE)
    gains = pl.concat([own["gains"].with_columns(suite=pl.lit(suite)) for suite, own in by_suite.items()])
    flat = gains.with_columns(pl.col("shifts").list.join(" "))
    write_bytes(flat.write_csv().encode(), comparison.out / GAINS)
    for line in gain_lines(gains):
        say(line)
    say(f"wrote {comparison.out / PAGE} and {comparison.out / GAINS}")


def gain_lines(gains: pl.DataFrame) -> list[str]:
    """Return one line per arm and suite: the gain on clean images, and the largest gain under shift."""
    import polars as pl

    lines = []
    for (arm, suite), rows in gains.group_by("arm", "suite", maintain_order=True):
        clean, shifted = (rows.filter((pl.col("family") == "clean") == keep) for keep in (True, False))
        parts = [f"clean {_gain(row)}" for row in clean.to_dicts()]
        for row in shifted.sort("value", descending=True, nulls_last=True).head(1).to_dicts():
            at = "" if row["severity"] is None else f" at severity {row['severity']:g}"
            label = "largest gain" if row["value"] > 0 else "no gain under shift, smallest loss"
            parts.append(f"{label} in {row['family']}{at} {_gain(row)}")
        of = f" ({suite})" if gains["suite"].n_unique() > 1 else ""
        lines.append(f"{arm}{of}: {', '.join(parts)}")
    return lines


def _gain(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def _training(comparison: Comparison, member: Member) -> dict[str, Any]:
    """Write the page of one training, and return its entry for the page of the arms."""
    from sorites.models.trained import read_record
    from sorites.reports.training import training_page
    from sorites.training import history
    from sorites.training.recipe import defaults

    folder = member.folder(comparison.out)
    record = read_record(folder)
    page = training_page(
        record.model_dump(mode="json"), history.read(folder), folder / "train.html", defaults()
    )
    validation = record.validation or {}
    return {
        "name": member.name,
        "arm": member.arm,
        "seed": member.seed,
        "accuracy": validation.get("accuracy"),
        "model": f"trained:{folder}",
        "page": page.relative_to(comparison.out).as_posix(),
    }


app = typer.Typer(no_args_is_help=True, help="Train models from recipes: augmentations, heads, fine-tuning.")


@app.callback()
def _train() -> None:
    """Train models from recipes: augmentations, heads, fine-tuning."""


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help='A recipe, from "sorites list recipes" (NAME or NAME@VARIANT), or the path of a .toml file.',
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the trained model.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="SPEC",
            help=(
                "Initial model: small, lite0, timm:NAME, timm:NAME@WEIGHTS, trained:DIR; NAME@random has"
                " random weights."
            ),
        ),
    ] = None,
    source: options.SourceName = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|found",
            help="A file of class names, or found: the classes of the source.",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            "--validation",
            metavar="SHARE|SOURCE",
            help="Validate on a fraction of the images (0.1), or on this source.",
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            "--augment", metavar="NAMES", help="Augmentations: optics, augmix, optics,augmix, cascade, none."
        ),
    ] = None,
    head_only: Annotated[
        bool | None, typer.Option("--head-only/--all-layers", help="Train only the last layer.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Number of training epochs.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="Number of training steps.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", min=1, help="Batch size.")] = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key of the recipe: optimiser.lr=0.01. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if available."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Number of threads that decode images."),
    ] = None,
    checkpoint_seconds: Annotated[
        float,
        typer.Option(
            "--checkpoint-seconds", metavar="S", min=0, help="Write a checkpoint at least this often."
        ),
    ] = 60.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Train a model from a recipe.

    Writes a folder that can be used as the model trained:DIR, with the page
    train.html. Run the same command again to continue after a stop; the
    final weights are the same.
    """
    from sorites.core.progress import text_bars as told_bars
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
        percent = {key: 100 * record.validation[key] for key in ("accuracy", "low", "high")}
        interval = f"[{percent['low']:.1f}, {percent['high']:.1f}]"
        say(f"validation accuracy {percent['accuracy']:.1f} %  {interval}  n = {record.validation['n']}")
    say(f"wrote the model trained:{folder} and {folder / 'train.html'}")
