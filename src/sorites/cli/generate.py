"""``sorites generate``: nuisance shifts from a diffusion model (sliders, learnt words, styles, checks)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sorites.cli.options import Address, Format, GpusPerWorker, SuiteSeed, Workers, engine_of
from sorites.cli.output import say
from sorites.core.errors import SoritesError
from sorites.core.messages import noun

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from sorites.apps.generation.pairs import Axes
    from sorites.apps.generation.recipes import PairRecipe, SliderRecipe
    from sorites.apps.generation.spread import Spread
    from sorites.diffusion.memory import MemorySettings
    from sorites.diffusion.pipeline import Pipe
    from sorites.diffusion.sampler import SamplerOptions
    from sorites.diffusion.shelves import Concept, Shelf


T = TypeVar("T", bound="DataclassInstance")

app = typer.Typer(
    help="Train sliders on a diffusion model, generate images with them, and check both.",
    no_args_is_help=True,
)

PIPELINE = typer.Option(
    "--pipeline",
    metavar="DIR|toy",
    help="A diffusers folder (Stable Diffusion 1, 2, XL, 3, FLUX), or toy, the built-in one.",
)
PipelineFolder = Annotated[str, PIPELINE]
Steps = Annotated[
    int | None, typer.Option("--noise-steps", metavar="N", help="Denoising steps per image; 50 as published.")
]
Guidance = Annotated[
    float | None,
    typer.Option("--guidance", metavar="X", help="Guidance scale; 7.5 as published, 0 for Turbo."),
]
Start = Annotated[
    float | None,
    typer.Option(
        "--active",
        metavar="PERCENT",
        help="Last part of the denoising steps in which sliders are active; 75 as published.",
    ),
]
Negative = Annotated[str | None, typer.Option("--negative", metavar="WORDS", help="Negative prompt.")]
Size = Annotated[
    int | None,
    typer.Option(
        "--size",
        metavar="PX",
        help="Scale images to this width; default: 256 as published, unscaled for toy.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="NAME",
        help="ddim, euler, dpm++, unipc, pndm, ..., or own, that of the pipeline; ddim as published.",
    ),
]
Seeding = Annotated[
    str | None,
    typer.Option(
        "--seeding",
        metavar="prompt|plain",
        help="Noise from class and seed (default), or from the seed alone, as in the published images.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if available."),
]
Number = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="NAME",
        help="float32, bfloat16 or float16; default on a GPU: bfloat16, as published.",
    ),
]
Offload = Annotated[
    str,
    typer.Option(
        "--offload",
        metavar="none|model|sequential",
        help="Networks (model) or single layers (sequential) wait on the CPU while they are not used.",
    ),
]
Slicing = Annotated[bool, typer.Option("--slicing", help="The autoencoder sees one image at a time.")]
Tiling = Annotated[
    bool,
    typer.Option("--tiling", help="The autoencoder sees tiles of large images; changes images a little."),
]
LearntWords = Annotated[
    str | None,
    typer.Option(
        "--words",
        metavar="DIR",
        help='Learnt words, from "sorites generate words", or a released text encoder (IN*), for classes.',
    ),
]
Classes = Annotated[
    list[str] | None, typer.Option("--class", metavar="NAME", help="Use only this class. May be repeated.")
]
ClassSet = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="cns|imagenet|toy|FILE",
        help="The 100 classes of CNS-Bench, ImageNet's 1000, the toy's four, or a file with one per line.",
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe", metavar="released|toy", help="Parameters of the released trainer, or small ones."
    ),
]
TrainingSteps = Annotated[int | None, typer.Option("--steps", metavar="N", help="Training steps.")]
LearningRate = Annotated[float | None, typer.Option("--rate", metavar="X", help="Learning rate.")]
TrainingBatch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Images per training step.")]
Batch = Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Batch size.")]
ImageFormat = Annotated[
    str | None, typer.Option("--format", metavar="jpg|png", help="File format; jpg as published.")
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Work in worker processes: processes, or ray (also on a cluster).",
    ),
]
Safety = Annotated[
    str | None,
    typer.Option(
        "--safety",
        metavar="own|python:...",
        help="Safety checker for every image; styles draws rejected ones again, images marks them.",
    ),
]
OutImages = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the images.")]


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help='The folder of "sorites generate images".')],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", metavar="NAME", help="Image-text encoder: open_clip:NAME@WEIGHTS, toy, cifar."
        ),
    ] = "toy",
    second: Annotated[
        str | None,
        typer.Option("--second", metavar="NAME", help="Image-only encoder: timm:NAME, lite0, toy:all."),
    ] = None,
    thresholds: Annotated[
        str,
        typer.Option("--thresholds", metavar="published|FILE", help="Thresholds of the out-of-class filter."),
    ] = "published",
    rule: Annotated[
        str,
        typer.Option("--rule", metavar="paper|code|text", help="Number of votes that an image needs."),
    ] = "paper",
    softmax: Annotated[
        bool,
        typer.Option(
            "--softmax", help="Apply a softmax to the second encoder's features, as the published code does."
        ),
    ] = False,
    real: Annotated[
        Path | None,
        typer.Option(
            "--real", metavar="DIR", help="Real images; find the three nearest to each generated image."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="NAME",
            help="With --real: print Fréchet and kernel distance on this model's features.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Print the accuracy of this model at severity 0."),
    ] = None,
    plain: Annotated[
        Path | None,
        typer.Option(
            "--plain", metavar="DIR", help="Images from plain prompts, to compare with those of --words."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The file for the nearest real images; default: DIR/nearest.parquet.",
        ),
    ] = None,
    format: Format = "table",
) -> None:
    """Check generated images against their prompts.

    Prints how often a higher severity raises the similarity to the text of
    the shift, and how many images the out-of-class filter would remove.
    --real also writes the nearest real images. --features and --model print
    realism metrics instead, for any folder of images.
    """
    from sorites.apps.generation.check import check_images, check_realism
    from sorites.cli.printing import print_frame

    realism = check_realism(folder, plain, real, features, model)
    if realism is not None:
        say("images at severity 0 compared with real images; 95 % intervals", err=format != "table")
        print_frame(realism, format)
        return
    if thresholds == "published":
        say(
            "note: the published thresholds are for --encoder open_clip:ViT-B-16@openai and the softmax of"
            " DINOv2 ViT-L/14's features; for other encoders pass --thresholds FILE, such as the"
            " facts/out_of_class.json of an annotated run",
            err=True,
        )
    checked = check_images(folder, encoder, second, thresholds, rule, real, out, softmax)
    say(
        "share of steps in severity that raise the similarity to the text of the shift (paper: 0.73 of steps"
        " above 0)"
    )
    print_frame(checked.rises, format)
    say("images before and after the out-of-class filter")
    print_frame(checked.cut, format)
    if checked.nearest is not None:
        say(f"wrote {checked.nearest}")
    _say_next(folder, err=True)


@app.command()
def styles(
    labels: Annotated[
        Path, typer.Option("--labels", metavar="FILE", help="A file of labels to draw, one per line.")
    ],
    against: Annotated[str, typer.Option("--against", metavar="NAME:PATH", help="In-distribution images.")],
    out: OutImages,
    pipeline: PipelineFolder = "toy",
    style_file: Annotated[
        Path | None,
        typer.Option(
            "--styles",
            metavar="FILE",
            help="A file of styles (name, prompt, negative_prompt); default: the 51 of Syn-IS.",
        ),
    ] = None,
    encoder: Annotated[str, typer.Option("--encoder", metavar="NAME", help="Image-text encoder.")] = "toy",
    decomposition: Annotated[
        str | None,
        typer.Option(
            "--decomposition",
            metavar="FILE",
            help='A decomposition, from "sorites decompose train"; default: learnt from the labels.',
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Use at most N in-distribution images.")
    ] = None,
    k: Annotated[
        int,
        typer.Option("--k", metavar="N", help="Use the distance to the N-th nearest neighbour."),
    ] = 10,
    levels: Annotated[
        int, typer.Option("--levels", metavar="N", min=2, max=8, help="Levels per axis; 8 as published.")
    ] = 8,
    per_cell: Annotated[
        int, typer.Option("--per-cell", metavar="N", min=1, help="Images per cell; 5000 as published.")
    ] = 5000,
    prompts: Annotated[
        int | None,
        typer.Option("--prompts", metavar="N", min=1, help="Measure only N prompts, drawn evenly."),
    ] = None,
    block: Annotated[
        Path | None,
        typer.Option(
            "--block", metavar="FILE", help="A file of additional words to block in prompts, one per line."
        ),
    ] = None,
    safety: Safety = None,
    in_distribution: Annotated[
        int,
        typer.Option("--id-images", metavar="N", help="Number of in-distribution images to write as well."),
    ] = 500,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the number of prompts and their cost, then exit.")
    ] = False,
    noise_steps: Steps = None,
    guidance: Guidance = None,
    scheduler: Scheduler = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="PX", help="Scale images to this width.")
    ] = None,
    batch: Batch = 12,
    format: ImageFormat = None,
    device: Device = None,
    dtype: Number = None,
    offload: Offload = "none",
    slicing: Slicing = False,
    tiling: Tiling = False,
) -> None:
    """Generate labels in styles, with the same number of images per cell of distance.

    Writes images by semantic and covariate level in the layout of IS-OOD,
    which the source is_ood reads. Run the same command again to continue
    after a stop.
    """
    from sorites.apps.generation.styles import blocked_words, labels_of, pair_prompts
    from sorites.apps.generation.styles import styles as styles_of
    from sorites.evaluation.facts.distance import checked_distance

    prompt_plan = pair_prompts(labels_of(labels), styles_of(style_file), blocked_words(block), prompts)
    drawing = _drawing(pipeline == "toy", noise_steps, guidance, size=size, scheduler=scheduler)
    passes = drawing.steps * (2 if drawing.guidance > 1 else 1)
    say(
        f"{len(prompt_plan):,} prompts: {len(prompt_plan.labels):,} labels in"
        f" {len(prompt_plan.styles)} styles; {prompt_plan.blocked:,} blocked"
    )
    say(
        f"at most {levels**2 * per_cell:,} images in {levels**2} cells: {levels**2 * per_cell * passes:,}"
        " forward passes"
    )
    if plan:
        return
    from sorites.apps.generation.safety import checker
    from sorites.apps.generation.styles import Order, draw_styles, require_source
    from sorites.core.progress import bars
    from sorites.diffusion.pipeline import load
    from sorites.diffusion.saving import Saving

    how = checked_distance(
        encoder=encoder, against=against, limit=limit, decomposition=decomposition, k=k, levels=levels
    )
    kind = format or ("png" if pipeline == "toy" else "jpg")
    order = Order(per_cell, kind, batch, in_distribution)
    judge = checker(safety, _checked_folder(pipeline))
    require_source(how)
    saving = Saving(offload, slicing, tiling)
    pipe = load(pipeline, device, dtype, saving=saving)
    drawing = _for_pipe(drawing, pipe, scheduler, guidance)
    with bars() as bar:
        counts = draw_styles(pipe, prompt_plan, how, out, drawing, order, judge, bar)
    say(
        f"wrote {counts.images:,} images in {counts.cells} cells to {out}; {counts.empty_cells}"
        f" cells have no prompt; the checker rejected {counts.flagged} images,"
        f" {counts.given_up} without a replacement"
    )
    say(f"next: sorites run is_ood --source is_ood:{out}")


@app.command()
def words(
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="NAME:PATH", help="Real images with class labels, such as folder:PATH."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the learnt words.")],
    pipeline: PipelineFolder = "toy",
    classes: ClassSet = None,
    only: Classes = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME|FILE",
            help="Labels of the source; default: ImageNet's (ids, names, numbers), or the classes.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Use at most N images per class.")
    ] = None,
    recipe: RecipeName = None,
    steps: TrainingSteps = None,
    rate: LearningRate = None,
    batch: TrainingBatch = None,
    vectors: Annotated[
        int | None, typer.Option("--vectors", metavar="N", help="Embedding vectors per class.")
    ] = None,
    seed: SuiteSeed = None,
    device: Device = None,
    dtype: Number = None,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Learn one word per class from images (textual inversion).

    Writes embeddings that diffusers can load. Run the same command again to
    continue after a stop.
    """
    from sorites import core
    from sorites.apps.generation.concepts import concepts, label_space, labels_of
    from sorites.apps.generation.recipes import word_recipe
    from sorites.apps.generation.spread import open_pipe
    from sorites.apps.generation.words import learn_words, require_images
    from sorites.core.progress import bars

    is_toy = pipeline == "toy"
    how = _replace_given(
        word_recipe(recipe or ("toy" if is_toy else "released")),
        steps=steps,
        rate=rate,
        batch=batch,
        vectors=vectors,
        seed=seed,
    )
    asked = concepts(classes or ("toy" if is_toy else "cns"), only or ())
    space = label_space(asked, labels)
    numbered = labels_of(asked, space)
    samples = core.source(source, space).samples
    require_images(asked, samples, numbered)
    opening = functools.partial(open_pipe, pipeline, device, dtype)
    spread = _spread(engine, workers, address, gpus_per_worker, opening)
    with bars() as bar:
        made = learn_words(opening(), asked, samples, numbered, how, out, limit, bar, spread)
    say(f"wrote {len(made)} {noun(len(made), 'word')} to {out}")
    say(f"next: sorites generate images --words {out} --out images")


@app.command()
def sliders(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the sliders.")],
    pipeline: PipelineFolder = "toy",
    classes: ClassSet = None,
    only: Classes = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            metavar="WORDS",
            help=(
                'Text of a shift to train, such as "heavy snow"; default: all shifts of the set. May be'
                " repeated."
            ),
        ),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            "--pairs",
            metavar="NAME:PATH",
            help="Learn --shift from images before and after it, such as a folder of sorites build.",
        ),
    ] = None,
    recipe: RecipeName = None,
    eta: Annotated[
        float | None, typer.Option("--eta", metavar="X", help="Strength of the training target.")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", help="Rank of the adapter.")] = None,
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", metavar="X", help="Scale of the adapter in training, divided by the rank."),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="NAME",
            help="Layers that get an adapter: noxattn, xattn, full; of transformers attention, joint.",
        ),
    ] = None,
    steps: TrainingSteps = None,
    rate: LearningRate = None,
    batch: TrainingBatch = None,
    train_noise_steps: Annotated[
        int | None,
        typer.Option(
            "--train-noise-steps",
            metavar="N",
            help="Denoising steps in training; released code: 50, paper: 100.",
        ),
    ] = None,
    side: Annotated[
        int | None, typer.Option("--side", metavar="PX", help="Width of training images.")
    ] = None,
    seed: SuiteSeed = None,
    noise_steps: Steps = None,
    guidance: Guidance = None,
    active: Start = None,
    negative: Negative = None,
    scheduler: Scheduler = None,
    seeding: Seeding = None,
    words: LearntWords = None,
    per_pass: Annotated[
        int | None,
        typer.Option(
            "--per-pass",
            metavar="N",
            min=1,
            help="Images per pass; gradients of a batch are added up. Less takes less memory.",
        ),
    ] = None,
    checkpointing: Annotated[
        bool,
        typer.Option("--checkpointing", help="Compute activations twice instead of keeping them in memory."),
    ] = False,
    strip: Annotated[
        bool, typer.Option("--strip/--no-strip", help="Write a strip of example images for each slider.")
    ] = True,
    device: Device = None,
    dtype: Number = None,
    offload: Offload = "none",
    slicing: Slicing = False,
    tiling: Tiling = False,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Train one slider per class and shift.

    Writes adapters that diffusers can load, with their training parameters
    and a strip of example images. Run the same command again to continue
    after a stop.
    """
    from sorites.apps.generation.concepts import SETS, concepts
    from sorites.apps.generation.recipes import pair_recipe, suited
    from sorites.apps.generation.recipes import recipe as slider_recipe
    from sorites.apps.generation.sliders import train_sliders
    from sorites.apps.generation.spread import open_pipe
    from sorites.core.progress import bars
    from sorites.diffusion.conditions import refuse_unknown_words
    from sorites.diffusion.memory import MemorySettings
    from sorites.diffusion.pipeline import TRANSFORMERS, kind_of, load_tokenizer
    from sorites.diffusion.saving import Saving
    from sorites.diffusion.words import require_words
    from sorites.reports.figures.strips import sheet

    is_toy = pipeline == "toy"
    drawing = _drawing(is_toy, noise_steps, guidance, active, negative, scheduler=scheduler, seeding=seeding)
    opening = functools.partial(open_pipe, pipeline, device, dtype, words, Saving(offload, slicing, tiling))
    memory, which = MemorySettings(per_pass, checkpointing), classes or ("toy" if is_toy else "cns")
    recipe = recipe or ("toy" if is_toy else "released")
    if pairs is not None:
        _check_pairs(shift, eta, train_noise_steps, side, engine)
        learning = _replace_given(
            pair_recipe(recipe),
            rank=rank, alpha=alpha, layers=layers, steps=steps, rate=rate, batch=batch, seed=seed,
            start=drawing.start,
        )  # fmt: skip
        learning = learning if layers else suited(learning, kind_of(pipeline) in TRANSFORMERS)
        made = _learn_from_pairs(
            pairs, concepts(which, only or ()), shift or [], learning, out, opening, memory,
            functools.partial(_for_pipe, drawing, scheduler=scheduler, guidance=guidance),
        )  # fmt: skip
        return _say_written(made, out)
    how = _replace_given(
        slider_recipe(recipe),
        eta=eta,
        rank=rank,
        alpha=alpha,
        layers=layers,
        steps=steps,
        rate=rate,
        batch=batch,
        noise_steps=train_noise_steps,
        side=side,
        seed=seed,
    )
    how = how if layers else suited(how, kind_of(pipeline) in TRANSFORMERS)
    asked, shifts = concepts(which, only or ()), _shifts_or_default(shift, SETS, which)
    spread = _spread(engine, workers, address, gpus_per_worker, opening)
    if words:
        require_words(words)
    else:
        refuse_unknown_words(load_tokenizer(pipeline), _prompts(asked, shifts, how))
    pipe = opening()
    drawing = _for_pipe(drawing, pipe, scheduler, guidance)
    with bars() as bar:
        made = train_sliders(
            pipe, asked, shifts, how, out, drawing, sheet if strip else None, bar, spread, memory
        )
    _say_written(made, out)


def _prompts(asked: Sequence[Concept], shifts: Sequence[str], how: SliderRecipe) -> Iterator[str]:
    return (text for concept in asked for name in shifts for text in how.words(concept.name, name))


def _say_written(made: list[Path], out: Path) -> None:
    say(f"wrote {len(made)} {noun(len(made), 'slider')} to {out}")
    say(f"next: sorites generate images --sliders {out} --out images")


def _shifts_or_default(shift: list[str] | None, sets: Mapping[str, Sequence[str]], which: str) -> list[str]:
    """Return the shifts that were asked for, or those of a set of classes."""
    shifts = shift or list(sets.get(which, ()))
    if not shifts:
        raise SoritesError(
            f'missing --shift, such as --shift "heavy snow"; only the sets {" and ".join(sets)} have default'
            " shifts"
        )
    return shifts


def _check_pairs(
    shift: list[str] | None, eta: float | None, noise_steps: int | None, side: int | None, engine: str | None
) -> None:
    if not shift:
        raise SoritesError("--pairs needs --shift NAME, a shift of the source")
    others = {"--eta": eta, "--train-noise-steps": noise_steps, "--side": side, "--engine": engine}
    if wrong := [name for name, value in others.items() if value is not None]:
        raise SoritesError(f"--pairs learns from images, in this process and at their width: drop {wrong[0]}")


def _learn_from_pairs(
    source: str,
    asked: list[Concept],
    shifts: list[str],
    recipe: PairRecipe,
    out: Path,
    opening: Callable[[], Pipe],
    memory: MemorySettings,
    drawing: Callable[..., SamplerOptions],
) -> list[Path]:
    from sorites import core
    from sorites.apps.generation.concepts import label_space, labels_of
    from sorites.apps.generation.image_pairs import learn_sliders, require_pairs
    from sorites.core.progress import bars

    space = label_space(asked)
    numbered, samples = labels_of(asked, space), core.source(source, space).samples
    require_pairs(asked, samples, numbered, shifts)
    pipe = opening()
    with bars() as bar:
        return learn_sliders(
            pipe, asked, samples, numbered, shifts, recipe, out, drawing(pipe=pipe), bar, memory
        )


@app.command()
def images(
    out: OutImages,
    sliders: Annotated[
        str,
        typer.Option(
            "--sliders",
            metavar="DIR|ZIP|toy",
            help='The folder of "sorites generate sliders", or released sliders as a folder or .zip.',
        ),
    ] = "toy",
    pipeline: Annotated[str | None, PIPELINE] = None,
    severity: Annotated[
        str | None,
        typer.Option(
            "--severity",
            metavar="X,X,...",
            help="Severities to generate (scales of the benchmark); default: 0,0.5,1,1.5,2,2.5.",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|M..N", help="Seeds 1 to N, or M to N, for each class.")
    ] = "50",
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", metavar="NAME", help="Use only this slider. May be repeated."),
    ] = None,
    only: Classes = None,
    words: LearntWords = None,
    slider: Annotated[
        list[str] | None,
        typer.Option(
            "--slider",
            metavar="NAME=X[,X...]",
            help="Combine two sliders on a grid of these severities; one alone is taken with its half.",
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            "--control",
            metavar="DIR",
            help="A ControlNet, which holds the edges of each image while the slider moves it.",
        ),
    ] = None,
    control_image: Annotated[
        str | None,
        typer.Option(
            "--control-image",
            metavar="edges|python:...",
            help="With --control, what it holds: edges, or a function that returns another map.",
        ),
    ] = None,
    control_scale: Annotated[
        float | None, typer.Option("--control-scale", metavar="X", help="With --control, its weight; 1.")
    ] = None,
    by_text: Annotated[
        bool,
        typer.Option(
            "--by-text", help="Also generate each shift from text alone, without a slider, for comparison."
        ),
    ] = False,
    noise_steps: Steps = None,
    guidance: Guidance = None,
    active: Start = None,
    negative: Negative = None,
    scheduler: Scheduler = None,
    seeding: Seeding = None,
    size: Size = None,
    safety: Safety = None,
    licence: Annotated[
        str | None,
        typer.Option(
            "--licence", metavar="ID", help="Licence of the images for the dataset card, such as cc-by-4.0."
        ),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(
            "--batch", metavar="N|auto", help="Batch size; auto measures the memory of a pass and fills it."
        ),
    ] = "12",
    format: ImageFormat = None,
    device: Device = None,
    dtype: Number = None,
    offload: Offload = "none",
    slicing: Slicing = False,
    tiling: Tiling = False,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Generate trajectories: each seed at every severity.

    Writes images in the layout of CNS-Bench, a manifest of all parameters, a
    dataset card, Croissant metadata and annotations_cns.json. Run the same
    command again to continue after a stop.
    """
    from sorites.apps.generation.cards import Description
    from sorites.apps.generation.images import SEVERITIES, checked_severities, make_images
    from sorites.apps.generation.pairs import axes_of, make_pairs
    from sorites.apps.generation.safety import checker
    from sorites.apps.generation.spread import open_pipe
    from sorites.core.progress import bars
    from sorites.diffusion.sampler import sampler_options_from
    from sorites.diffusion.saving import Saving
    from sorites.diffusion.shelves import shelf
    from sorites.io.readers import numbers
    from sorites.reports.figures.strips import sheet
    from sorites.sources.papers.cns_bench import classes as cns_classes

    severities, asked_seeds = numbers(severity, "--severity") if severity else SEVERITIES, _seeds(seeds)
    axes = axes_of(_severities_of(slider)) if slider else None
    about = Description(out.name, licence, safety)
    selected = shelf(sliders, cns_classes()).kept(axes.names if axes else shift or (), only or ())
    _check_grid(axes, {"--engine": engine, "--by-text": by_text, "--shift": shift, "--severity": severity})
    where = _pipeline_of(selected, pipeline)
    is_toy = where == "toy"
    changes = _changes(
        noise_steps, guidance, active, negative, size if size or is_toy else 256, scheduler, seeding
    )
    drawing, kind = sampler_options_from(selected.record, **changes), format or ("png" if is_toy else "jpg")
    checked_severities(severities, asked_seeds, kind)
    asked_batch, judge = _checked_batch(batch), checker(safety, _checked_folder(where, words))
    holding = _holding(control, control_image, control_scale)
    opening = functools.partial(
        open_pipe, where, device, dtype, words, Saving(offload, slicing, tiling), holding
    )
    spread = _spread(engine, workers, address, gpus_per_worker, opening)
    pipe = opening()
    recorded = selected.record.drawing.get("guidance")
    drawing = _for_pipe(drawing, pipe, scheduler, recorded if guidance is None else guidance)
    per_batch = asked_batch or _fitting_batch(pipe, drawing)
    if axes is not None:
        with bars() as bar:
            rows = make_pairs(
                pipe, selected, axes, asked_seeds, out, drawing, sheet, kind, per_batch, bar, about, judge
            )
        say(f"wrote {len(rows)} {noun(len(rows), 'image')} to {out}, and sheets to {out / 'sheets'}")
        _say_next(out, ("grid_accuracy", "failure_contour", "interaction"))
        return
    with bars() as bar:
        rows = make_images(
            pipe,
            selected,
            severities,
            asked_seeds,
            out,
            drawing,
            kind,
            by_text=by_text,
            batch=per_batch,
            bar=bar,
            spread=spread,
            about=about,
            safety=judge,
        )
    say(f"wrote {len(rows)} {noun(len(rows), 'image')} to {out}\nnext: sorites generate check {out}")
    _say_next(out, head="     ")


def _holding(control: str | None, image: str | None, scale: float | None) -> tuple[str, str, float] | None:
    """Return the ControlNet of --control, what it holds, and its weight."""
    from sorites.diffusion.control import EDGES, require_control

    if control is None:
        if image is not None or scale is not None:
            raise SoritesError("--control-image and --control-scale need --control DIR")
        return None
    holding = control, image or EDGES, 1.0 if scale is None else scale
    require_control(*holding)
    return holding


def _check_grid(axes: Axes | None, others: Mapping[str, object]) -> None:
    if axes and (wrong := [name for name, value in others.items() if value]):
        raise SoritesError(
            f"--slider draws a grid of two sliders at its own severities, in this process: drop {wrong[0]}"
        )


def _pipeline_of(shelf: Shelf, given: str | None) -> str:
    where = given or shelf.record.pipeline
    if not where:
        raise SoritesError(
            "released sliders do not name their pipeline: add --pipeline DIR, of Stable Diffusion 2"
        )
    return where


def _checked_folder(pipeline: str, words: str | None = None) -> Path:
    """Return the folder of a pipeline, after a look at it and at learnt words that loads no network."""
    from sorites.diffusion.pipeline import folder_of, kind_of
    from sorites.diffusion.words import require_words

    kind_of(pipeline)
    if words:
        require_words(words)
    return folder_of(pipeline)


def _checked_batch(text: str) -> int | None:
    """Return the batch size of --batch; None if it is auto."""
    from sorites.io.readers import parse_integer

    if text == "auto":
        return None
    number = parse_integer(text)
    if number is None or number < 1:
        raise SoritesError(f"--batch expects a number from 1, or auto; got {text[:40]!r}")
    return number


def _fitting_batch(pipe: Pipe, drawing: SamplerOptions) -> int:
    from sorites.diffusion.memory import fitting_batch

    batch = fitting_batch(pipe, drawing)
    say(f"batch: {batch} images fit into the free memory", err=True)
    return batch


def _say_next(out: Path, metrics: tuple[str, ...] = (), head: str = "next:", err: bool = False) -> None:
    labels = out / "labels.txt"
    known = f" --labels {labels}" if labels.is_file() else ""
    say(f"{head} sorites run cns_bench --source cns_bench:{out}{known} --out RUN", err=err)
    if metrics:
        say(f"      sorites metrics RUN {metrics[0]}; also {', '.join(metrics[1:])}")


def _spread(
    name: str | None, workers: int | None, address: str | None, gpus: float, opening: Callable[[], Pipe]
) -> Spread | None:
    """Return the engine named by --engine, or None to generate in this process.

    The local engine is not used: its threads would wait for one network.
    """
    from sorites.apps.generation.spread import Spread
    from sorites.evaluation.engines import ENGINES

    named = engine_of(name or "local", address, gpus)
    engine = ENGINES.get(named) if isinstance(named, str) else named
    if engine.one_process:
        if workers is not None:
            raise SoritesError("--workers requires --engine processes or ray")
        return None
    return Spread(engine, workers or engine.cores(), opening)


def _changes(
    steps: int | None = None,
    guidance: float | None = None,
    active: float | None = None,
    negative: str | None = None,
    size: int | None = None,
    scheduler: str | None = None,
    seeding: str | None = None,
) -> dict[str, Any]:
    if active is not None and not 0 <= active <= 100:
        raise SoritesError(f"--active must be a percentage from 0 to 100, got {active:g}")
    start = None if active is None else round(active * 10)
    return {
        "steps": steps,
        "guidance": guidance,
        "start": start,
        "negative": negative,
        "size": size,
        "scheduler": scheduler,
        "seeding": seeding,
    }


def _drawing(is_toy: bool, *values: Any, **named: Any) -> SamplerOptions:
    from sorites.diffusion.sampler import TOY_DRAWING, SamplerOptions

    base = TOY_DRAWING if is_toy else SamplerOptions()
    return _replace_given(base, **_changes(*values, **named))


def _for_pipe(
    drawing: SamplerOptions, pipe: Pipe, scheduler: str | None, guidance: float | None
) -> SamplerOptions:
    """Return the sampler settings with what a pipeline needs, unless something else was asked for.

    A flow has its own scheduler. FLUX takes the guidance as a number, or has none.
    """
    from sorites.diffusion.conditions import EMBEDDED_GUIDANCE

    if pipe.is_flow and scheduler is None:
        drawing = dataclasses.replace(drawing, scheduler="own")
    if pipe.kind == "flux" and guidance is None:
        usual = EMBEDDED_GUIDANCE if pipe.has_embedded_guidance else 0.0
        drawing = dataclasses.replace(drawing, guidance=usual)
    return drawing


def _replace_given(base: T, **values: Any) -> T:
    """Return a recipe with the values that are not None."""
    return dataclasses.replace(base, **{name: value for name, value in values.items() if value is not None})


def _seeds(text: str) -> list[int]:
    from sorites.io.readers import parse_integer

    first, dots, last = text.partition("..")
    low, high = (parse_integer(first), parse_integer(last)) if dots else (1, parse_integer(first))
    if low is None or high is None or low > high or high > 10**8:
        raise SoritesError(
            f"--seeds expects a number, such as 50, or a range, such as 1..50; got {text[:40]!r}"
        )
    return list(range(low, high + 1))


def _severities_of(texts: list[str]) -> list[tuple[str, list[float]]]:
    from sorites.io.readers import numbers

    severities = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SoritesError(f"--slider expects NAME=SEVERITY, such as heavy_snow=1.5, got {text[:80]!r}")
        severities.append((name, list(numbers(value, "--slider"))))
    return severities
