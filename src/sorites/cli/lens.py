"""``sorites lens`` and ``sorites kernels``: trace real lenses, rank, select and draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, Glasses, LensFolder, LensName, MaxPixels
from sorites.cli.output import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ExportFile = Annotated[Path, typer.Option("--out", metavar="FILE.pt|.npy", help="The file to write.")]
ExportForm = Annotated[
    str,
    typer.Option(
        "--as", metavar="tensor|module", help="A plain array, or a TorchScript module that blurs images."
    ),
]
ExportPadding = Annotated[
    str,
    typer.Option("--padding", metavar="zeros|reflect", help="The border of images that the module blurs."),
]


def photo(
    lens: LensName,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGE", help="Photographs of up to 100 megapixels each: JPEG, PNG, WebP, TIFF ..."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="The folder for the PNG files, named like the images."),
    ],
    folder: LensFolder = None,
    corner: Annotated[
        float,
        typer.Option(
            "--corner",
            metavar="X",
            help="Field position of the image corners; 1 is the edge of the lens's field.",
        ),
    ] = 1.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Apply the blur of a lens to whole photographs.

    Writes one PNG file per photograph; the blur varies with the distance from
    the centre, as it does for the lens.
    """
    from sorites.core.progress import bars
    from sorites.datasets.lens_photo import photograph
    from sorites.lenses.store import builtin, load

    entry = load(folder or builtin(), lens)
    with bars() as bar:
        failed = photograph(entry, images, out, corner, bar)
    for _, reason in failed:
        say(f"not written: {reason}", err=True)
    say(f"wrote {len(images) - len(failed)} of {len(images)} images to {out}")
    if failed:
        raise typer.Exit(1)


def space(
    folder: LensFolder = None,
    n: Annotated[
        int | None,
        typer.Option("--n", metavar="N", min=1, help='Mark the lenses that "select --n N" would select.'),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The image to write.")] = Path(
        "lens-space.png"
    ),
) -> None:
    """Plot a set of lenses by three kinds of aberration.

    Writes one image that shows the lenses at five field positions, and by
    focal length and field of view.
    """
    from sorites.core.errors import SoritesError
    from sorites.lenses.store import builtin, load, names, select_spread
    from sorites.reports.figures.lenses import space as draw_space
    from sorites.reports.figures.strips import save

    store = folder or builtin()
    every = [load(store, name) for name in names(store)]
    entries = [entry for entry in every if entry.about.measured is None]
    if len(entries) < len(every):
        say(f"{len(every) - len(entries)} measured lenses have no wavefront and are left out", err=True)
    if not entries:
        raise SoritesError(f"no traced lenses in {store}")
    if n is not None and n > len(entries):
        say(f"only {len(entries)} lenses exist; all are marked", err=True)
    chosen = (
        select_spread({entry.name: entry.quality for entry in entries}, min(n, len(entries)))
        if n is not None
        else []
    )
    save(draw_space(entries, chosen), out)
    say(f"wrote {out}")


def tolerance(
    lens: Annotated[
        str,
        typer.Argument(
            metavar="LENS", help="A Zemax .zmx file, or the name of one of optiland's objectives."
        ),
    ],
    of: Annotated[
        str, typer.Option("--of", metavar="decentre|tilt|spacing", help="Kind of manufacturing error.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the traced file.")],
    element: Annotated[
        int | None,
        typer.Option(
            "--element",
            metavar="K",
            min=1,
            help="Glass element to move; default: the one that degrades the image most.",
        ),
    ] = None,
    stops: Annotated[
        str,
        typer.Option(
            "--stops", metavar="X,Y,...", help="Sizes of the error, in um, or in arc minutes for tilt."
        ),
    ] = "1,5,10,20,50,100",
    field: Annotated[
        float,
        typer.Option(
            "--field", metavar="F", help="Trace the axis and this fraction of the half field of view."
        ),
    ] = 0.7,
    refocus: Annotated[
        bool, typer.Option("--refocus", help="Move the sensor to the best focus at every size.")
    ] = False,
    glass: Glasses = None,
    format: Format = "table",
) -> None:
    """Trace a lens with one element decentred, tilted or displaced.

    Writes the kernels at every size of the error as one file for the suite
    tolerances, and prints one row per size.
    """
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars
    from sorites.io.readers import numbers
    from sorites.lenses.tolerances import load_or_trace, table
    from sorites.lenses.trace import read_glasses

    steps = list(numbers(stops, "--stops"))
    with bars() as bar:
        more = {"element": element, "refocus": refocus, "glasses": read_glasses(glass or ())}
        tolerances, path = load_or_trace(lens, of, steps, field, out, bar, **more)
    about = tolerances.about
    why = ", which degrades the image most" if about.chosen else ""
    print_frame(table(tolerances), format)
    say(
        f"element {about.element} of {about.elements}{why}; pixel {about.pitch_um:.2f} um; wrote {path}",
        err=True,
    )
    say(f"next: sorites run tolerances --shift {of} --option tolerances={path}", err=True)


app = typer.Typer(
    help="Trace real lenses from their prescriptions; rank, select and draw them.",
    no_args_is_help=True,
)


@app.command(name="import")
def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help=(
                "Prescriptions (Zemax .zmx, CODE V .seq, OSLO .len, optiland's .json), folders of them,"
                " names of optiland's objectives, or measurements (--as)."
            ),
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the lenses.")],
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="prescription|psf|edge",
            help="What the files are: prescriptions, PSFs (.npy, .mat, .pt), photographs of a slanted edge.",
        ),
    ] = "prescription",
    pitch_um: Annotated[
        float | None,
        typer.Option(
            "--pitch-um", metavar="UM", help="Sampling of measured PSFs or pixel pitch of the photograph."
        ),
    ] = None,
    focus: Annotated[
        str,
        typer.Option(
            "--focus",
            metavar="best|file",
            help="Put the sensor at the best focus, or at the position in the file.",
        ),
    ] = "best",
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Number of lenses to trace in parallel.")
    ] = 1,
    glass: Glasses = None,
    format: Format = "table",
) -> None:
    """Trace prescriptions into blur kernels, or read measured ones.

    Reads files of Zemax, CODE V, OSLO and optiland; writes one file per
    accepted lens, and prints the reason for each rejected one. With --as,
    reads measured PSFs or photographs of a slanted edge instead.
    """
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars
    from sorites.lenses.measured import import_all
    from sorites.lenses.trace import read_glasses, trace_all

    _check_kind(kind, pitch=pitch_um is not None, traced=focus != "best" or bool(glass))
    if kind != "prescription":
        print_frame(import_all([Path(file) for file in files], kind, pitch_um, out), format)
        say(f"next: sorites lens list --lenses {out}", err=True)
        return
    with bars() as bar:
        table = trace_all(files, out, focus, workers, read_glasses(glass or ()), bar)
    print_frame(table, format)
    kept = int(table["accepted"].sum())
    say(f"{kept} of {len(table)} lenses are in {out}\nnext: sorites lens list --lenses {out}", err=True)


def _check_kind(kind: str, pitch: bool, traced: bool) -> None:
    """Refuse options that the kind of files does not use."""
    from sorites.core.errors import SoritesError

    if kind == "prescription" and pitch:
        raise SoritesError(
            "--pitch-um is for measurements: add --as psf or --as edge. The pixel of a prescription follows"
            " from its MTF20."
        )
    if kind != "prescription" and traced:
        raise SoritesError("--focus and --glass are for prescriptions; a measurement is used as it is")


@app.command(name="list")
def list_(folder: LensFolder = None, format: Format = "table") -> None:
    """Rank lenses by quality, the mean MTF50 of their kernels over the field.

    Reads a folder of traced lenses; prints one row per lens, MTF50 in cycles
    per pixel.
    """
    from sorites.cli.printing import print_frame
    from sorites.lenses.store import builtin, rank_lenses

    print_frame(rank_lenses(folder or builtin()), format)


@app.command()
def select(
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of lenses to select.")] = 100,
    folder: LensFolder = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Copy the selected lenses into this folder.")
    ] = None,
) -> None:
    """Select lenses spread evenly over quality.

    Prints the names of the selected lenses, worst first; --out copies them
    into a folder.
    """
    from sorites.lenses.store import builtin, load, names, select_spread

    store = folder or builtin()
    quality = {name: load(store, name).quality for name in names(store)}
    if n > len(quality):
        say(f"only {len(quality)} lenses exist; all are selected", err=True)
    chosen = select_spread(quality, min(n, len(quality)))
    if out is not None:
        _copy_lenses(chosen, store, out)
    say("\n".join(chosen))
    if out is not None:
        say(f"next: sorites run lens_corruptions --lenses {out}", err=True)


def _copy_lenses(chosen: Sequence[str], store: Path, out: Path) -> None:
    """Copy the selected lenses from the folder ``store``; refuse a folder that contains other lenses."""
    import shutil

    from sorites.core.errors import SoritesError
    from sorites.io.paths import resolve
    from sorites.lenses.store import SUFFIX, existing_names

    others = set(existing_names(out)) - set(chosen) if resolve(out) != resolve(store) else ()
    if others:
        raise SoritesError(
            f"{out} contains other lenses ({', '.join(sorted(others)[:3])}); use another --out DIR"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            shutil.copyfile(store / f"{name}{SUFFIX}", out / f"{name}{SUFFIX}")
    except shutil.SameFileError as error:
        raise SoritesError(
            f"cannot copy lenses onto themselves: {out} is their own folder; use another --out DIR"
        ) from error
    except OSError as error:
        raise SoritesError(
            f"cannot copy the lenses into {out}: {error.strerror or error}; use another --out DIR"
        ) from error


@app.command()
def show(
    lens: LensName,
    folder: LensFolder = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The image to write; default: LENS.png."),
    ] = None,
) -> None:
    """Draw a lens: its kernels over the field, MTF curves and Zernike content.

    Reads a traced lens; writes one image.
    """
    from sorites.lenses.store import builtin, load
    from sorites.reports.figures.lenses import sheet
    from sorites.reports.figures.strips import save

    path = out or Path(f"{lens}.png")
    save(sheet(load(folder or builtin(), lens)), path)
    say(f"wrote {path}")


@app.command()
def export(
    lens: LensName,
    out: ExportFile,
    form: ExportForm = "tensor",
    padding: ExportPadding = "reflect",
    folder: LensFolder = None,
) -> None:
    """Write the kernels of a lens for other programs.

    The array has the thirteen places of a lens (the axis, then three azimuths
    of each field), mirrored so that a cross-correlation such as torch's conv2d
    blurs like the shift lens.
    """
    from sorites.lenses.store import builtin, load
    from sorites.optics.tracing.blur import AZIMUTHS, FIELDS
    from sorites.training.kernel_files import export_kernels

    taps = load(folder or builtin(), lens).arrays["kernels"][..., ::-1, ::-1]
    export_kernels(taps, out, form, padding)
    fields, angles = (", ".join(map(str, values)) for values in (FIELDS[1:], AZIMUTHS))
    places = f"0 the axis, 1 to {len(taps) - 1} the azimuths {angles} of field {fields}, field by field"
    say(f"wrote {out}: {_described(taps, form, places)}")


def _described(kernels: NDArray[np.float32], form: str, numbers: str) -> str:
    """Describe exported kernels: their shape, or how a module is called."""
    shape = " x ".join(map(str, kernels.shape))
    if form == "tensor":
        return f"float32 {shape}"
    return f"module(images, which) of {shape} kernels; which has a number for each image: {numbers}"


app.command()(photo)
app.command()(space)
app.command()(tolerance)


kernels_app = typer.Typer()


@kernels_app.command(name="export")
def export_stack(
    out: ExportFile,
    form: ExportForm = "tensor",
    padding: ExportPadding = "zeros",
    path: Annotated[
        Path | None,
        typer.Option("--kernels", metavar="PATH", help="Export this stack instead of the built-in one."),
    ] = None,
) -> None:
    """Write the kernels of the lens aberrations for other programs.

    The array has the published shape 8 x 5 x 3 x 25 x 25 (mode, level, colour,
    y, x), so that the released OpticsBench code can read it.
    """
    from sorites.shifts.aberration import LEVELS, WAVES, default, load
    from sorites.training.kernel_files import export_kernels

    stack = (default() if path is None else load(path)).array
    export_kernels(stack, out, form, padding)
    modes, levels = f"Fringe modes {min(WAVES)} to {max(WAVES)}", f"levels 1 to {len(LEVELS)}"
    rule = f"(mode - {min(WAVES)}) * {len(LEVELS)} + level - 1, {modes}, {levels}"
    say(f"wrote {out}: {_described(stack, form, rule)}")


@kernels_app.callback(invoke_without_command=True)
def kernels(
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Option(
            "--kernels", metavar="PATH", help="Draw this published kernel stack instead of the built-in one."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The image to write.")] = Path(
        "kernels.png"
    ),
    format: Format = "table",
) -> None:
    """Draw the kernels of the lens aberrations, or match them to another camera.

    Without a command, writes a figure of the kernels with their MTF curves,
    and prints the sharpness of each relative to the disk.
    """
    if context.invoked_subcommand is not None:
        return
    from sorites.cli.printing import print_frame
    from sorites.reports.figures.kernels import sheet
    from sorites.reports.figures.strips import save
    from sorites.shifts.aberration import load
    from sorites.shifts.kernel_table import kernel_table

    stack = None if path is None else load(path)
    save(sheet(stack), out)
    print_frame(kernel_table(stack), format)
    say(f"wrote {out}\nnext: sorites run optics_bench   or   sorites kernels match", err=True)


@kernels_app.command()
def match(
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference", metavar="PATH", help="Kernel stack to match; default: ImageNet-C's disks."
        ),
    ] = None,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            metavar="mtf50|area|ssim|psnr|overall",
            help=("Quantity to match; overall is the best fit over all four, in steps of 0.1 waves."),
        ),
    ] = "mtf50",
    f_number: Annotated[
        float | None, typer.Option("--f-number", metavar="F", help="f-number of your lens.")
    ] = None,
    pixel: Annotated[
        float | None,
        typer.Option("--pixel", metavar="UM", help="Pixel pitch of your sensor, in micrometres."),
    ] = None,
    wavelengths: Annotated[
        str | None,
        typer.Option(
            "--wavelengths", metavar="R,G,B", help="Wavelengths of the three colour channels, in micrometres."
        ),
    ] = None,
    mode: Annotated[
        list[int] | None,
        typer.Option(
            "--mode", metavar="N", help="Match only this Zernike mode (Fringe 4 to 11). May be repeated."
        ),
    ] = None,
    level: Annotated[
        list[int] | None, typer.Option("--level", metavar="N", help="Match only this level. May be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npy", help="Write the matched set, for --kernels.")
    ] = None,
    format: Format = "table",
) -> None:
    """Find the Zernike coefficients whose kernels match a reference.

    Prints the coefficient of each mode and level with its fit by every
    criterion; --out writes the matched set.
    """
    from sorites.cli.printing import print_frame
    from sorites.core.errors import SoritesError
    from sorites.io.files import check_writable, write_bytes
    from sorites.io.readers import numbers
    from sorites.shifts.aberration import LEVELS, WAVES
    from sorites.shifts.kernel_table import camera, check_complete, kernel_set_bytes, match_table

    if out is not None:
        if out.suffix != ".npy":
            raise SoritesError(f"--out: expected FILE.npy, which --kernels reads, got {out}")
        check_complete([(m, n) for m in mode or WAVES for n in level or LEVELS])
        check_writable(out)
    lens = camera(f_number, pixel, None if wavelengths is None else numbers(wavelengths, "--wavelengths"))
    stack = None if reference is None else str(reference)
    frame, matched = match_table(stack, criterion, lens, tuple(mode or WAVES), tuple(level or LEVELS))
    print_frame(frame, format)
    say(
        "caught: share of the light inside the frame; mtf, area: relative difference to the reference;"
        " acutance: difference; ssim, psnr (dB): of the blurred charts",
        err=True,
    )
    if out is None:
        say("next: add --out SET.npy to write the set", err=True)
        return
    write_bytes(kernel_set_bytes(matched), out)
    say(f"wrote {out}\nnext: sorites run optics_bench --kernels {out}", err=True)
