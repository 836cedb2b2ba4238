"""The verb that learns words: what stands for a class in a prompt, learnt from real pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sorites.cli.output import say


def words(
    source: Annotated[
        str, typer.Option("--source", metavar="NAME:PATH", help="Real pictures with their classes, such as folder:PATH.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the words go to.")],
    pipeline: Annotated[
        str, typer.Option("--pipeline", metavar="DIR|toy", help="A folder of diffusers: Stable Diffusion 1, 2, XL; or toy.")
    ] = "toy",
    classes: Annotated[
        str | None,
        typer.Option("--classes", metavar="cns|toy|FILE", help="The hundred of CNS-Bench, the toy's four, or a file."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--class", metavar="NAME", help="Only this class. May be repeated.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Pictures per class, in a fair order.")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", metavar="released|toy", help="The parameters of learning.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps of learning.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="X", help="The learning rate.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", help="Pictures per step.")] = None,
    vectors: Annotated[int | None, typer.Option("--vectors", metavar="N", help="Vectors that stand for a class.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of every random draw.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda; the default is a GPU if any.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="NAME", help="float32, bfloat16 or float16.")] = None,
) -> None:
    """Learn the words of classes from pictures (textual inversion).

    Reads a pipeline and real pictures by class; writes one word per class,
    which diffusers loads too. Stopped, the same command goes on where it was.
    """
    from dataclasses import replace

    from sorites import core
    from sorites.diffusion.pipeline import load
    from sorites.generation.concepts import concepts
    from sorites.generation.learn_words import learn_words
    from sorites.generation.word_recipe import word_recipe
    from sorites.labels import labels
    from sorites.progress import bars

    pipe, is_toy = load(pipeline, device, dtype), pipeline == "toy"
    options = {"steps": steps, "rate": rate, "batch": batch, "vectors": vectors, "seed": seed}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    how = replace(word_recipe(recipe or ("toy" if is_toy else "released")), **given)
    which = classes or ("toy" if is_toy else "cns")
    names = [one.name for one in concepts(which)]
    samples = core.source(source, labels(names))
    with bars() as bar:
        made = learn_words(pipe, concepts(which, only or ()), samples.samples, names, how, out, limit, bar)
    say(f"{len(made)} words are in {out}\nnext: sorites generate pictures --words {out} --out pictures")
