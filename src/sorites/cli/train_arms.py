"""The verb that trains several arms and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli import options
from sorites.cli.output import say

if TYPE_CHECKING:
    import polars as pl

    from sorites.training.arms.compare import Compared
    from sorites.training.arms.members import Member

ARMS = "none,optics,augmix,cascade"
PAGE, GAINS = "arms.html", "gains.csv"


def arms(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help='A recipe from "sorites list recipes", or the path of a .toml file.')
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the comparison.")],
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            metavar="NAMES",
            help="Augmentations with commas between them. The first is what the others are compared with; a+b is the chain of "
            "a and b.",
        ),
    ] = ARMS,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Train every arm with this many seeds.")] = 1,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", metavar="SUITE", help="Judge by this suite, not by those of the recipe. May be repeated."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Judge by this many pictures of a suite's source.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Train for this many steps.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", min=1, help="Train for this many epochs.")] = None,
    seed: options.SuiteSeed = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the recipe: optimiser.lr=0.01. May be repeated."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; the default is a GPU where there is one.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Train this many arms at a time.")] = 2,
) -> None:
    """Train arms that differ in their augmentation alone, and compare them.

    Reads a recipe; writes a folder with the trained models, the runs of
    the recipe's suites, gains.csv and the page arms.html. Type the same
    command again to continue one that was stopped.
    """
    from sorites.progress import bars, told_bars
    from sorites.training.arms.compare import evaluate, prepare, train_all

    changes: dict[str, Any] = {"steps": steps, "epochs": epochs, "seed": seed, **options.key_values(set_, "--set")}
    made = prepare(recipe, out, arms=arms.split(","), seeds=seeds, suites=suite or (), **changes)
    with told_bars() as told:
        train_all(made, device=device, workers=workers, bar=told)
    with bars() as bar:
        evaluated = evaluate(made, limit=limit, bar=bar)
    _write(made, evaluated)


def _write(made: Compared, tables: dict[str, pl.LazyFrame]) -> None:
    """Write the page and the gains, and print them."""
    import polars as pl

    from sorites.files import write_bytes
    from sorites.reports.arms_page import arms_page
    from sorites.training.arms.gains import frames

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
    """Return a line per arm and suite: the gain on clean pictures, and the largest one with where it is."""
    import polars as pl

    lines = []
    for (arm, suite), rows in gains.group_by("arm", "suite", maintain_order=True):
        clean, moved = (rows.filter((pl.col("family") == "clean") == wanted) for wanted in (True, False))
        said = [f"clean {_gain(row)}" for row in clean.to_dicts()]
        for row in moved.sort("value", descending=True, nulls_last=True).head(1).to_dicts():
            at = "" if row["severity"] is None else f" at severity {row['severity']:g}"
            said.append(f"{'most' if row['value'] > 0 else 'no gain; best'} in {row['family']}{at} {_gain(row)}")
        of = f" ({suite})" if gains["suite"].n_unique() > 1 else ""
        lines.append(f"{arm}{of}: {', '.join(said)}")
    return lines


def _gain(row: dict[str, Any]) -> str:
    return f"{100 * row['value']:+.1f} points [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def _training(made: Compared, member: Member) -> dict[str, Any]:
    """Write the page of one training, and return what the page of the arms says of it."""
    from sorites.models._trained_folder import read_record
    from sorites.reports.training_page import training_page
    from sorites.training import history
    from sorites.training.recipe import defaults

    folder = member.folder(made.out)
    record = read_record(folder)
    page = training_page(record.model_dump(mode="json"), history.read(folder), folder / "train.html", defaults())
    held = record.validation or {}
    return {
        "name": member.name,
        "arm": member.arm,
        "seed": member.seed,
        "accuracy": held.get("accuracy"),
        "model": f"trained:{folder}",
        "page": page.relative_to(made.out).as_posix(),
    }
