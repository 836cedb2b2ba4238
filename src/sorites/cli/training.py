"""``sorites attack``, ``explain`` and ``train``: adversarial attacks, Grad-CAM and training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli import options
from sorites.cli.options import derived
from sorites.cli.output import say
from sorites.core.messages import noun
from sorites.core.options import key_values
from sorites.training.options import AttackOptions, ExplainOptions, LadderOptions, TrainOptions

if TYPE_CHECKING:
    import polars as pl


@derived(AttackOptions)
def attack(options: AttackOptions) -> None:
    """Attack models with APGD.

    Writes a run folder with one shift per attack, whose severity is epsilon.
    Run the same command again to continue after a stop.
    """
    from sorites.cli.printing import format_frame, print_run_summary
    from sorites.core.progress import bars, recording
    from sorites.core.table import read
    from sorites.training.attack.run import attack_models, worst_case

    opened: list[str] = []
    with options.reading(), bars() as bar:
        folder = attack_models(options, recording(bar, opened))
    say("correct under every attack:")
    say(format_frame(worst_case(read(folder)), "table"))
    print_run_summary(folder, worked=bool(opened))


@derived(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Compute saliency maps for images whose prediction flipped.

    Recreates the images of a run and writes maps to RUN/explanations, which
    the report shows: Grad-CAM of torch classifiers, RISE or occlusion of any
    other model, for detectors of objects that were lost or gained. Existing
    files are kept.
    """
    from sorites.core.progress import bars
    from sorites.core.table import run_folder
    from sorites.evaluation.storage.explanations import ROOM
    from sorites.training.explain.run import explain_flips

    with options.reading(), bars() as bar:
        explained = explain_flips(options, bar)
    if not explained:
        say("nothing to explain: no image flipped, or the images are not available")
        return
    say(f"explained {len(explained)} {noun(len(explained), 'image')} in {run_folder(options.run) / ROOM}")
    say(f"next: sorites report {options.run}")


ARMS = "none,optics,augmix,cascade"


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
    from sorites.core.progress import bars, text_bars
    from sorites.training.arms import evaluate, prepare, train_all, write_results

    changes: dict[str, Any] = {
        "steps": steps,
        "epochs": epochs,
        "seed": seed,
        **key_values(set_, "set"),
    }
    comparison = prepare(recipe, out, arms=arms.split(","), seeds=seeds, suites=suite or (), **changes)
    with text_bars() as training_bar:
        train_all(comparison, device=device, workers=workers, bar=training_bar)
    with bars() as bar:
        tables = evaluate(comparison, limit=limit, bar=bar)
    results = write_results(comparison, tables)
    for line in gain_lines(results.gains):
        say(line)
    say(f"wrote {results.page} and {results.file}")


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


app = typer.Typer(no_args_is_help=True, help="Train models from recipes: augmentations, heads, fine-tuning.")


@app.callback()
def _train() -> None:
    """Train models from recipes: augmentations, heads, fine-tuning."""


@app.command()
@derived(TrainOptions)
def run(options: TrainOptions) -> None:
    """Train a model from a recipe.

    Writes a folder that can be used as the model trained:DIR, with the page
    train.html. Run the same command again to continue after a stop; the
    final weights are the same.
    """
    from sorites.core.progress import text_bars
    from sorites.models.trained import read_record
    from sorites.training.loop import PAGE, train_model

    with text_bars() as bar:
        folder = train_model(options, bar, lambda text: say(f"note: {text}", err=True))
    record = read_record(folder)
    if record.validation is not None:
        percent = {key: 100 * record.validation[key] for key in ("accuracy", "low", "high")}
        interval = f"[{percent['low']:.1f}, {percent['high']:.1f}]"
        say(f"validation accuracy {percent['accuracy']:.1f} %  {interval}  n = {record.validation['n']}")
    say(f"wrote the model trained:{folder} and {folder / PAGE}")


app.command()(arms)


@app.command()
@derived(LadderOptions, format=(options.Format, "table"))
def ladder(options: LadderOptions, format: str) -> None:
    """Train and evaluate the experiments of ImageNet-ES's Table 6.

    Trains experiments 1 to 3, and 4 to 6 at three cuts, from the recipe
    imagenet_es_ladder, and prints their accuracy in % on IN, IN-C and ES with
    95 % intervals. Run the same command again to continue after a stop.
    """
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars, text_bars
    from sorites.training.ladder import NOTES, train_ladder

    with text_bars() as training_bar, bars() as bar:
        made = train_ladder(options, bar, training_bar)
    print_frame(made.table if format != "table" else rung_lines(made.table), format)
    for note in NOTES:
        say(f"note: {note}", err=True)
    say(f"wrote {made.file}", err=format != "table")


def rung_lines(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table of a ladder for a terminal: each accuracy in % with its interval in one column."""
    import polars as pl

    def shown(name: str) -> pl.Expr:
        ends = [(100 * pl.col(column)).round(1).cast(pl.String) for column in _ends(name)]
        return pl.format("{} [{}, {}]", *ends).alias(name.upper().replace("_", "-"))

    return table.select("experiment", "augmentation", "cut", *map(shown, ("in", "in_c", "es")), n="in_n")


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"
