"""The verb that measures how near every shifted image of a run is to its own clean picture."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli.options import Address, EngineName, GpusPerWorker, MaxPixels, RunFolder, Workers, engine_of
from sorites.cli.output import say


def similarity(
    run: RunFolder,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure", metavar="NAME", help="Measure this: psnr, ssim, lpips, exposure_error, clipped_share. May be repeated."
        ),
    ] = None,
    lpips_below: Annotated[
        float | None,
        typer.Option("--lpips-below", metavar="X", help="Mark settings as not valid unless their mean LPIPS is below this."),
    ] = None,
    lpips_measure: Annotated[
        str | None,
        typer.Option(
            "--lpips-measure",
            metavar="lpips|lpips_linear",
            help="The measure that --lpips-below goes by. The default is the one that the run's suite names.",
        ),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure how near every shifted image is to its own clean picture.

    Reads a run folder and makes its pictures again; writes
    facts/similarity.parquet beside its table. What was measured before is
    not measured again. PSNR and SSIM are higher for nearer pictures, LPIPS
    is lower.
    """
    from sorites.files import locked
    from sorites.pipeline.folder import read_info
    from sorites.pipeline.similarity import DEFAULT
    from sorites.pipeline.similarity import similarity as measure_similarity
    from sorites.progress import bars

    read_info(run)
    with locked(run), bars() as bar:
        path = measure_similarity(
            run, measure or DEFAULT, lpips_below=lpips_below, lpips_measure=lpips_measure,
            engine=engine_of(engine, address, gpus_per_worker), workers=workers, bar=bar,
        )  # fmt: skip
    say(f"wrote {path}\nnext: sorites report {run}")
