"""The verbs about the kernels of the lens aberrations: draw them, and match them to a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format
from sorites.cli.output import say

app = typer.Typer()


@app.callback(invoke_without_command=True)
def kernels(
    context: typer.Context,
    path: Annotated[
        Path | None, typer.Option("--kernels", metavar="PATH", help="Draw this published stack instead of our own.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture of the sheet.")] = Path("kernels.png"),
    format: Format = "table",
) -> None:
    """Draw the kernels of the lens aberrations, or match them to another camera.

    Without a command: reads our kernels or a published stack; writes a sheet
    of the kernels and their MTF curves, and prints how sharp each is against
    the disk.
    """
    if context.invoked_subcommand is not None:
        return
    from sorites.cli.printing import format_frame
    from sorites.drawings.kernel_sheet import sheet
    from sorites.drawings.strip import save
    from sorites.shifts._kernel_table import kernel_table
    from sorites.shifts._kernels import load

    stack = None if path is None else load(path)
    save(sheet(stack), out)
    say(format_frame(kernel_table(stack), format), nl=False, exact=format != "table")
    say(f"wrote {out}\nnext: sorites run optics_bench   or   sorites kernels match", err=True)


@app.command()
def match(
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="PATH", help="A kernel stack to match; the default is ImageNet-C's disks."),
    ] = None,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            metavar="mtf50|area|ssim|psnr|overall",
            help="The quantity that is made equal, or overall: the best fit by all four, in steps of 0.1 waves.",
        ),
    ] = "mtf50",
    f_number: Annotated[float | None, typer.Option("--f-number", metavar="F", help="The f-number of your lens.")] = None,
    pixel: Annotated[
        float | None, typer.Option("--pixel", metavar="UM", help="The pixel pitch of your sensor, in micrometres.")
    ] = None,
    wavelengths: Annotated[
        str | None, typer.Option("--wavelengths", metavar="R,G,B", help="The wavelengths of the three colours, in micrometres.")
    ] = None,
    mode: Annotated[
        list[int] | None,
        typer.Option("--mode", metavar="N", help="Match only this Zernike mode (Fringe 4 to 11). May be repeated."),
    ] = None,
    level: Annotated[
        list[int] | None, typer.Option("--level", metavar="N", help="Match only this level. May be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.npy", help="Keep the matched set, for --kernels.")] = None,
    format: Format = "table",
) -> None:
    """Find the coefficients whose kernels match a reference.

    Reads a kernel stack, or takes ImageNet-C's disks; prints the coefficient
    of each mode and level and how well it matches by every criterion, and
    writes the matched set with --out.
    """
    from sorites.cli.printing import format_frame
    from sorites.files import write_bytes
    from sorites.reading.texts import numbers
    from sorites.shifts._kernel_table import camera, match_table, packed
    from sorites.shifts._kernels import LEVELS, WAVES

    lens = camera(f_number, pixel, None if wavelengths is None else numbers(wavelengths, "--wavelengths"))
    stack = None if reference is None else str(reference)
    frame, matched = match_table(stack, criterion, lens, tuple(mode or WAVES), tuple(level or LEVELS))
    say(format_frame(frame, format), nl=False, exact=format != "table")
    if out is None:
        say("next: add --out SET.npy to keep the set", err=True)
        return
    write_bytes(packed(matched), out)
    say(f"wrote {out}\nnext: sorites run optics_bench --kernels {out}", err=True)
