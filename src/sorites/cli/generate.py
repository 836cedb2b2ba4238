"""The verbs that make nuisance shifts on a diffusion model: train sliders, draw images along
them, check both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli.options import Address, Format, GpusPerWorker, Workers, engine_of
from sorites.cli.output import say
from sorites.core.errors import SoritesError

if TYPE_CHECKING:
    from sorites.apps.generation.images import Spread
    from sorites.diffusion.pipeline import Pipe
    from sorites.diffusion.sampler import Drawing

# The verb that checks generated images: whether a step of the severity shows, and what the filter would
# cut.


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help='The folder of "sorites generate images".')],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", metavar="NAME", help="The image-text encoder: open_clip:NAME@WEIGHTS, toy, cifar."
        ),
    ] = "toy",
    second: Annotated[
        str | None,
        typer.Option(
            "--second", metavar="NAME", help="The encoder of images alone: timm:NAME, lite0, toy:all."
        ),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option("--thresholds", metavar="published|FILE", help="Thresholds of the out-of-class filter."),
    ] = "published",
    rule: Annotated[
        str,
        typer.Option(
            "--rule", metavar="paper|code|text", help="The rule that says how many votes keep an image."
        ),
    ] = "paper",
    real: Annotated[
        Path | None,
        typer.Option(
            "--real", metavar="DIR", help="Real images: name the three nearest to each generated one."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="NAME",
            help="With --real: Fréchet and kernel distance on this model's features.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Print the accuracy of this model at severity 0."),
    ] = None,
    plain: Annotated[
        Path | None,
        typer.Option("--plain", metavar="DIR", help="Images of plain prompts to compare with (--words)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The file of the nearest real images; default DIR/nearest.parquet.",
        ),
    ] = None,
    format: Format = "table",
) -> None:
    """Check generated images against their words.

    Reads generated images; prints how often a step of the severity raises
    the likeness to the shift's words, and what the out-of-class filter would
    cut; with --real also writes the nearest real images. With --features
    or --model it prints how real they are instead, of any folder of images.
    """
    from sorites.apps.generation.check import check_images, check_realism
    from sorites.cli.printing import format_frame

    found_real = check_realism(folder, plain, real, features, model)
    if found_real is not None:
        say("images at severity 0 against real ones; 95 % intervals", err=format != "table")
        say(format_frame(found_real, format), nl=False, exact=format != "table")
        return
    found = check_images(folder, encoder, second, thresholds, rule, real, out)
    say(
        "how often a step of the severity raises the likeness to the words of the shift (paper: 0.73 of steps"
        " from above 0)"
    )
    say(format_frame(found.rises, format), nl=False, exact=format != "table")
    say("images before and after the out-of-class filter")
    say(format_frame(found.cut, format), nl=False, exact=format != "table")
    if found.nearest is not None:
        say(f"wrote {found.nearest}")
    say(f"next: sorites run cns_bench --source cns_bench:{folder}", err=True)


# The verb that draws labels in styles, the same number for every cell of distance (Syn-IS).


def styles(
    labels: Annotated[
        Path, typer.Option("--labels", metavar="FILE", help="A file of objects to draw: one label per line.")
    ],
    against: Annotated[
        str, typer.Option("--against", metavar="NAME:PATH", help="The in-distribution images.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the images go to.")],
    pipeline: Annotated[
        str,
        typer.Option(
            "--pipeline", metavar="DIR|toy", help="A folder of diffusers: Stable Diffusion 1, 2, XL; or toy."
        ),
    ] = "toy",
    style_file: Annotated[
        Path | None,
        typer.Option(
            "--styles",
            metavar="FILE",
            help="Own styles: name, prompt, negative_prompt; default the 51 of Syn-IS.",
        ),
    ] = None,
    encoder: Annotated[
        str, typer.Option("--encoder", metavar="NAME", help="The image-text encoder that measures.")
    ] = "toy",
    decomposition: Annotated[
        str | None,
        typer.Option(
            "--decomposition",
            metavar="FILE",
            help='A file of "sorites decompose train"; else learnt from the labels.',
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="In-distribution images taken to measure.")
    ] = None,
    k: Annotated[
        int,
        typer.Option("--k", metavar="N", help="Distance is that to the k-th nearest in-distribution image."),
    ] = 10,
    levels: Annotated[
        int, typer.Option("--levels", metavar="N", min=2, max=8, help="Levels per axis: 8 x 8 as published.")
    ] = 8,
    per_cell: Annotated[
        int, typer.Option("--per-cell", metavar="N", help="Images per cell; 5000 as published.")
    ] = 5000,
    prompts: Annotated[
        int | None,
        typer.Option("--prompts", metavar="N", min=1, help="Measure only this many prompts, drawn evenly."),
    ] = None,
    block: Annotated[
        Path | None,
        typer.Option("--block", metavar="FILE", help="Further words that no prompt may hold, one per line."),
    ] = None,
    safety: Annotated[
        str | None,
        typer.Option("--safety", metavar="own|python:...", help="A checker that every image must pass."),
    ] = None,
    in_distribution: Annotated[
        int, typer.Option("--id-images", metavar="N", help="In-distribution images written beside them.")
    ] = 500,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say how many prompts there are and what they cost.")
    ] = False,
    noise_steps: Annotated[
        int | None, typer.Option("--noise-steps", metavar="N", help="Noise steps of an image.")
    ] = None,
    guidance: Annotated[
        float | None, typer.Option("--guidance", metavar="X", help="Guidance by the words; 0 for Turbo.")
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="PX", help="Scale images to this width.")
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="Images in the network at a time.")
    ] = 12,
    format: Annotated[str | None, typer.Option("--format", metavar="jpg|png", help="The files.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda; the default is a GPU if any.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="NAME", help="float32, bfloat16 or float16.")
    ] = None,
) -> None:
    """Draw labels in styles, equally many for every cell of distance.

    Reads a pipeline, labels and in-distribution images; writes images by semantic
    and covariate level in the layout of IS-OOD, which the source is_ood reads.
    Stopped, the same command goes on where it was.
    """
    from dataclasses import replace

    from sorites.apps.generation.styles import blocked_words, labels_of, planned
    from sorites.apps.generation.styles import styles as styles_of
    from sorites.diffusion.sampler import TOY_DRAWING, Drawing
    from sorites.evaluation.facts.distance import distance_options

    found = planned(labels_of(labels), styles_of(style_file), blocked_words(block), prompts)
    given: dict[str, Any] = {"steps": noise_steps, "guidance": guidance, "size": size}
    base = TOY_DRAWING if pipeline == "toy" else Drawing()
    drawing = replace(base, **{key: value for key, value in given.items() if value is not None})
    passes = drawing.steps * (2 if drawing.guidance > 1 else 1)
    say(
        f"{len(found):,} prompts of {len(found.labels):,} labels in {len(found.styles)} styles;"
        f" {found.blocked:,} blocked"
    )
    say(
        f"at most {levels**2 * per_cell:,} images in {levels**2} cells: {levels**2 * per_cell * passes:,}"
        " passes of the network"
    )
    if plan:
        return
    from sorites.apps.generation.safety import checker
    from sorites.apps.generation.styles import Order, draw_styles
    from sorites.core.progress import bars
    from sorites.diffusion.pipeline import load

    how = distance_options(
        encoder=encoder, against=against, limit=limit, decomposition=decomposition, k=k, levels=levels
    )
    pipe, kind = load(pipeline, device, dtype), format or ("png" if pipeline == "toy" else "jpg")
    order = Order(per_cell, kind, batch, in_distribution)
    with bars() as bar:
        counts = draw_styles(pipe, found, how, out, drawing, order, checker(safety, pipe), bar)
    say(
        f"{counts['images']:,} images in {counts['cells']} cells are in {out}; {counts['empty_cells']}"
        f" cells have no prompt; {counts['flagged']} images were refused by the checker,"
        f" {counts['given_up']} of them given up"
    )
    say(f"next: sorites run is_ood --source is_ood:{out}")


# The verb that learns words: what stands for a class in a prompt, learnt from real images of it.


def words(
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="NAME:PATH", help="Real images with their classes, such as folder:PATH."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the words go to.")],
    pipeline: Annotated[
        str,
        typer.Option(
            "--pipeline", metavar="DIR|toy", help="A folder of diffusers: Stable Diffusion 1, 2, XL; or toy."
        ),
    ] = "toy",
    classes: Annotated[
        str | None,
        typer.Option(
            "--classes", metavar="cns|toy|FILE", help="The hundred of CNS-Bench, the toy's four, or a file."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--class", metavar="NAME", help="Only this class. May be repeated.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Images per class, in a fair order.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="released|toy", help="The parameters of learning.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps of learning.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="X", help="The learning rate.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", help="Images per step.")] = None,
    vectors: Annotated[
        int | None, typer.Option("--vectors", metavar="N", help="Vectors that stand for a class.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The seed of every random draw.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda; the default is a GPU if any.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="NAME", help="float32, bfloat16 or float16.")
    ] = None,
) -> None:
    """Learn the words of classes from images (textual inversion).

    Reads a pipeline and real images by class; writes one word per class,
    which diffusers loads too. Stopped, the same command goes on where it was.
    """
    from dataclasses import replace

    from sorites import core
    from sorites.apps.generation.concepts import concepts
    from sorites.apps.generation.recipes import word_recipe
    from sorites.apps.generation.words import learn_words
    from sorites.core.labels import labels
    from sorites.core.progress import bars
    from sorites.diffusion.pipeline import load

    pipe, is_toy = load(pipeline, device, dtype), pipeline == "toy"
    options = {"steps": steps, "rate": rate, "batch": batch, "vectors": vectors, "seed": seed}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    how = replace(word_recipe(recipe or ("toy" if is_toy else "released")), **given)
    which = classes or ("toy" if is_toy else "cns")
    names = [one.name for one in concepts(which)]
    samples = core.source(source, labels(names))
    with bars() as bar:
        made = learn_words(pipe, concepts(which, only or ()), samples.samples, names, how, out, limit, bar)
    say(f"{len(made)} words are in {out}\nnext: sorites generate images --words {out} --out images")


app = typer.Typer(
    help="Train sliders on a diffusion model, draw images along them, and check both.", no_args_is_help=True
)
app.command()(words)
app.command()(styles)
app.command()(check)

PipelineFolder = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="DIR|toy",
        help="A folder of diffusers: Stable Diffusion 1, 2, XL; toy is the embedded one.",
    ),
]
Steps = Annotated[
    int | None, typer.Option("--noise-steps", metavar="N", help="Noise steps of an image; 50 as published.")
]
Guidance = Annotated[
    float | None, typer.Option("--guidance", metavar="X", help="Guidance by the words; 7.5 as published.")
]
Start = Annotated[
    float | None,
    typer.Option(
        "--active",
        metavar="PERCENT",
        help="The last part of the noise steps, in which sliders act: 75 as published.",
    ),
]
Negative = Annotated[
    str | None, typer.Option("--negative", metavar="WORDS", help="The negative prompt: what not to draw.")
]
Size = Annotated[
    int | None,
    typer.Option(
        "--size", metavar="PX", help="Scale images to this width; 256 as published, as drawn for the toy."
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; the default is a GPU if any."),
]
Number = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="NAME", help="float32, bfloat16 or float16; on a GPU bfloat16 as published."
    ),
]
LearntWords = Annotated[
    str | None,
    typer.Option(
        "--words", metavar="DIR", help='Learnt words of "sorites generate words" in the place of names.'
    ),
]
Classes = Annotated[
    list[str] | None, typer.Option("--class", metavar="NAME", help="Only this class. May be repeated.")
]


@app.command()
def sliders(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the sliders go to.")],
    pipeline: PipelineFolder = "toy",
    classes: Annotated[
        str | None,
        typer.Option(
            "--classes",
            metavar="cns|toy|FILE",
            help="The hundred of CNS-Bench, the toy's four, or a file: one per line.",
        ),
    ] = None,
    only: Classes = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            metavar="WORDS",
            help=(
                'The words of a shift to train, such as "heavy snow"; all of the set by default. May be'
                " repeated."
            ),
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", metavar="released|toy", help="Numbers of the released trainer, or small ones."
        ),
    ] = None,
    eta: Annotated[
        float | None, typer.Option("--eta", metavar="X", help="The distance of the target towards the shift.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="N", help="The rank of the adapter's matrices.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", metavar="X", help="Its scale in training, over the rank.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="noxattn|xattn|full", help="The layers it is on.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps of training.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="X", help="The learning rate.")] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", help="Images per step of training.")
    ] = None,
    train_noise_steps: Annotated[
        int | None,
        typer.Option(
            "--train-noise-steps", metavar="N", help="Noise steps of training; released 50, paper 100."
        ),
    ] = None,
    side: Annotated[
        int | None, typer.Option("--side", metavar="PX", help="The width of images in training.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The seed of every random draw.")
    ] = None,
    noise_steps: Steps = None,
    guidance: Guidance = None,
    active: Start = None,
    negative: Negative = None,
    words: LearntWords = None,
    strip: Annotated[
        bool, typer.Option("--strip/--no-strip", help="Draw a strip of images for each slider.")
    ] = True,
    device: Device = None,
    dtype: Number = None,
) -> None:
    """Train one slider per class and shift.

    Reads a diffusion pipeline; writes adapters that diffusers loads too, with
    everything that they were trained by and a strip of what they learnt.
    Stopped, the same command goes on where it was.
    """
    from dataclasses import replace

    from sorites.apps.generation.concepts import SETS, concepts
    from sorites.apps.generation.images import open_pipe
    from sorites.apps.generation.recipes import recipe as named
    from sorites.apps.generation.sliders import train_sliders
    from sorites.core.progress import bars
    from sorites.reports.figures.strips import sheet

    pipe, is_toy = open_pipe(pipeline or "toy", device, dtype, words), pipeline in (None, "toy")
    options = {
        "eta": eta, "rank": rank, "alpha": alpha, "layers": layers, "steps": steps, "rate": rate, "batch": batch,
        "noise_steps": train_noise_steps, "side": side, "seed": seed,
    }  # fmt: skip
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    how = replace(named(recipe or ("toy" if is_toy else "released")), **given)
    which = classes or ("toy" if is_toy else "cns")
    shifts = shift or list(SETS.get(which, ()))
    if not shifts:
        raise SoritesError(
            f'wanted what is turned up: --shift "heavy snow"; only {" and ".join(SETS)} have shifts of'
            " their own"
        )
    drawing = _drawing(is_toy, noise_steps, guidance, active, negative, None)
    with bars() as bar:
        made = train_sliders(
            pipe, concepts(which, only or ()), shifts, how, out, drawing, sheet if strip else None, bar
        )
    say(f"{len(made)} sliders are in {out}")
    say(f"next: sorites generate images --sliders {out} --out images")


@app.command()
def images(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the images go to.")],
    sliders: Annotated[
        str, typer.Option("--sliders", metavar="DIR|toy", help='The folder of "sorites generate sliders".')
    ] = "toy",
    pipeline: PipelineFolder = None,
    severity: Annotated[
        str,
        typer.Option(
            "--severity", metavar="X,X,...", help="The severities to draw; the benchmark calls them scales."
        ),
    ] = "0,0.5,1,1.5,2,2.5",
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|M..N", help="Seeds 1 to N, or M to N, of every class.")
    ] = "50",
    shift: Annotated[
        list[str] | None, typer.Option("--shift", metavar="NAME", help="Only this slider. May be repeated.")
    ] = None,
    only: Classes = None,
    words: LearntWords = None,
    slider: Annotated[
        list[str] | None,
        typer.Option(
            "--slider", metavar="NAME=X", help="Two sliders together, up to these severities, as one sheet."
        ),
    ] = None,
    by_text: Annotated[
        bool,
        typer.Option(
            "--by-text", help="Also draw each shift by words alone, without a slider, for comparison."
        ),
    ] = False,
    noise_steps: Steps = None,
    guidance: Guidance = None,
    active: Start = None,
    negative: Negative = None,
    size: Size = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="Images in the network at a time.")
    ] = 12,
    format: Annotated[
        str | None, typer.Option("--format", metavar="jpg|png", help="The files; jpg as published.")
    ] = None,
    device: Device = None,
    dtype: Number = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="NAME", help="Draw in other processes: processes, or ray, also on a cluster."
        ),
    ] = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Draw trajectories: one seed at every severity.

    Reads a pipeline and sliders; writes images in the layout of CNS-Bench,
    and a manifest of all that they follow from. Stopped, the same command
    goes on where it was.
    """
    from sorites.apps.generation.images import make_images, open_pipe
    from sorites.core.progress import bars
    from sorites.diffusion.sampler import drawing_from
    from sorites.diffusion.sliders import shelf
    from sorites.io.readers import numbers

    found = shelf(sliders).kept(shift or (), only or ())
    where = pipeline or str(found.facts.get("pipeline", ""))
    pipe, is_toy = open_pipe(where, device, dtype, words), where == "toy"
    changes = _changes(noise_steps, guidance, active, negative, size if size or is_toy else 256)
    drawing, kind = drawing_from(found.facts, **changes), format or ("png" if is_toy else "jpg")
    spread = _spread(
        engine, workers, address, gpus_per_worker, functools.partial(open_pipe, where, device, dtype, words)
    )
    if slider:
        from sorites.apps.generation.images import make_combined
        from sorites.reports.figures.strips import sheet

        sheets = make_combined(pipe, found, _tops(slider), _seeds(seeds), out, drawing, sheet, kind)
        say(f"wrote {len(sheets)} sheets, the first {sheets[0]}")
        return
    with bars() as bar:
        rows = make_images(
            pipe, found, numbers(severity, "--severity"), _seeds(seeds), out, drawing, kind,
            by_text=by_text, batch=batch, bar=bar, spread=spread,
        )  # fmt: skip
    say(f"{len(rows)} images are in {out}\nnext: sorites generate check {out}")
    own = out / "labels.txt"
    say(
        f"      sorites run cns_bench --source cns_bench:{out}"
        + (f" --labels {own}" if own.is_file() else "")
    )


def _spread(
    name: str | None, workers: int | None, address: str | None, gpus: float, opening: Callable[[], Pipe]
) -> Spread | None:
    """Return the engine that was typed; without one, and with local, this process draws: threads
    would wait for one network.
    """
    from sorites.apps.generation.images import Spread
    from sorites.evaluation.engines import ENGINES

    asked = engine_of(name or "local", address, gpus)
    found = ENGINES.get(asked) if isinstance(asked, str) else asked
    if found.one_process:
        if workers is not None:
            raise SoritesError(
                "--workers belongs to --engine processes or ray: one process draws with one network"
            )
        return None
    return Spread(found, workers or found.cores(), opening)


def _changes(
    steps: int | None, guidance: float | None, active: float | None, negative: str | None, size: int | None
) -> dict[str, Any]:
    if active is not None and not 0 <= active <= 100:
        raise SoritesError(f"--active wants a share of the noise steps in percent, 0 to 100, got {active:g}")
    start = None if active is None else round(active * 10)
    return {"steps": steps, "guidance": guidance, "start": start, "negative": negative, "size": size}


def _drawing(
    is_toy: bool,
    steps: int | None,
    guidance: float | None,
    active: float | None,
    negative: str | None,
    size: int | None,
) -> Drawing:
    from dataclasses import replace

    from sorites.diffusion.sampler import TOY_DRAWING, Drawing

    given = _changes(steps, guidance, active, negative, size)
    return replace(
        TOY_DRAWING if is_toy else Drawing(),
        **{key: value for key, value in given.items() if value is not None},
    )


def _seeds(text: str) -> list[int]:
    from sorites.io.readers import whole

    first, dots, last = text.partition("..")
    low, high = (whole(first), whole(last)) if dots else (1, whole(first))
    if low is None or high is None or low > high or high > 10**8:
        raise SoritesError(
            f"--seeds wants how many, such as 50, or from which to which, such as 1..50; got {text[:40]!r}"
        )
    return list(range(low, high + 1))


def _tops(texts: list[str]) -> list[tuple[str, float]]:
    from sorites.io.readers import numbers

    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SoritesError(f"--slider wants NAME=SEVERITY, such as heavy_snow=1.5, got {text[:80]!r}")
        found.append((name, numbers(value, "--slider")[0]))
    return found
