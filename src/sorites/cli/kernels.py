"""``sorites kernels``: the kernels of the lens aberrations as a sheet and a table, and matched to a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The kernels behind the lens aberrations: draw them, or match them to a camera of your own.")
Format = Annotated[str, typer.Option("--format", metavar="table|csv|json", help="How to print.")]


@app.callback(invoke_without_command=True)
def kernels(
    context: typer.Context,
    path: Annotated[Path | None, typer.Option("--kernels", metavar="PATH", help="A published stack instead of ours.")] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The sheet.")] = Path("kernels.png"),
    format: Format = "table",
) -> None:
    """Draw the kernel sheet with its MTF curves, and print the sharpness of each kernel against the disk."""
    if context.invoked_subcommand is not None:
        return
    from sorites.cli.printing import printed
    from sorites.drawings.kernel_sheet import sheet
    from sorites.drawings.strip import save
    from sorites.shifts._kernel_table import kernel_table
    from sorites.shifts._kernels import load

    held = None if path is None else load(path)
    save(sheet(held), out)
    typer.echo(printed(kernel_table(held), format), nl=False)
    typer.echo(f"wrote {out}\nnext: sorites run optics_bench   or   sorites kernels match", err=True)


@app.command()
def match(
    reference: Annotated[
        Path | None, typer.Option("--reference", metavar="PATH", help="A kernel stack; default ImageNet-C's disks.")
    ] = None,
    criterion: Annotated[str, typer.Option("--criterion", metavar="mtf50|area|ssim|psnr", help="What is made equal.")] = "mtf50",
    f_number: Annotated[float | None, typer.Option("--f-number", metavar="F", help="Of your lens.")] = None,
    pixel: Annotated[float | None, typer.Option("--pixel", metavar="UM", help="Pixel pitch of your sensor.")] = None,
    wavelengths: Annotated[str | None, typer.Option("--wavelengths", metavar="R,G,B", help="Micrometres.")] = None,
    mode: Annotated[
        list[int] | None, typer.Option("--mode", metavar="N", help="Only this Zernike mode (Fringe 4 to 11); may be repeated.")
    ] = None,
    level: Annotated[list[int] | None, typer.Option("--level", metavar="N", help="Only this level; may be repeated.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npy", help="Keep the whole matched set for --kernels.")
    ] = None,
    format: Format = "table",
) -> None:
    """Find the coefficient of each mode and level that matches a reference kernel, and say how well by every criterion."""
    from sorites.cli.printing import printed
    from sorites.files import write_bytes
    from sorites.shifts._kernel_table import camera, match_table, packed
    from sorites.shifts._kernels import LEVELS, WAVES

    lens = camera(f_number, pixel, [float(text) for text in wavelengths.split(",")] if wavelengths else None)
    named = None if reference is None else str(reference)
    frame, made = match_table(named, criterion, lens, tuple(mode or WAVES), tuple(level or LEVELS))
    typer.echo(printed(frame, format), nl=False)
    if out is None:
        typer.echo("next: add --out SET.npy to keep the set", err=True)
        return
    write_bytes(packed(made), out)
    typer.echo(f"wrote {out}\nnext: sorites run optics_bench --kernels {out}", err=True)
