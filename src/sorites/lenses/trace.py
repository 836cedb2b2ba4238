"""Trace prescriptions into lens files; a prescription that cannot be traced is refused with a reason."""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.core.errors import Notice, SoritesError, UnknownName, tell
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.paths import is_dir, is_file
from sorites.lenses.store import SUFFIX, Entry, Layout, LensRecord, existing_names, load, save

if TYPE_CHECKING:
    import polars as pl

    from sorites.optics.tracing.lens import Lens
    from sorites.optics.tracing.prescription import Glass

# Index and Abbe number at d and deviation of the partial dispersion by name, of glasses that are missing
# from the catalogues.
Glasses = Mapping[str, tuple[float, float, float]]
# Endings of prescriptions that are looked for in folders: Zemax, CODE V, OSLO. (.json may be anything.)
ENDINGS = (".zmx", ".seq", ".len")
# Endings of measurements, which are imported in another way.
MEASURED = (".npy", ".mat", ".pt", ".pth", ".png", ".jpg", ".jpeg", ".tif", ".tiff")
# Increment when tracing the same prescription gives a different entry.
TRACING = 6


def trace_lens(lens: Lens, focus: str = "best") -> Entry:
    """Trace a lens into an entry."""
    from sorites.optics.tracing.blur import blur
    from sorites.optics.tracing.places import trace_places

    blurs, image = blur(lens, focus), image_mm(lens)
    about = LensRecord(
        efl_mm=lens.paraxial.efl_mm,
        bfl_mm=lens.paraxial.bfl_mm,
        f_number=lens.f_number,
        fov_deg=2 * lens.field_deg,
        pitch_um=blurs.pitch_um,
        image_mm=image,
        pixels=round(1000 * image / blurs.pitch_um),
        mtf50=list(blurs.mtf50),
        quality=blurs.quality,
        focus=focus,
        focus_mm=blurs.focus_mm,
        window_um=blurs.window_um,
        caught=list(blurs.caught),
        kept=blurs.kept,
        lens=lens_digest(lens),
        layout=layout(lens),
    )
    if lens.substitutes:
        about = about.model_copy(update={"substitutes": dict(lens.substitutes)})
    arrays = {
        "kernels": blurs.kernels,
        "between": blurs.between,
        "mtf": blurs.mtf,
        "zernike": blurs.zernike,
        "zernike12": blurs.zernike12,
        **vars(trace_places(lens, blurs.window_um)),
    }
    return Entry(lens.name, {key: value.astype(np.float32) for key, value in arrays.items()}, about)


def image_mm(lens: Lens) -> float:
    """Return the image width of the whole field, extrapolated from the chief ray of the outermost traced
    field.
    """
    from sorites.optics.tracing.blur import FIELDS
    from sorites.optics.tracing.lens import D_LINE_UM
    from sorites.optics.tracing.rays import chief

    return 2 * abs(chief(lens, FIELDS[-1] * lens.field_deg, 90.0, D_LINE_UM)[1]) / FIELDS[-1]


def layout(lens: Lens) -> Layout:
    """Return the data for a drawing, in mm; ``stop`` is the number of the aperture stop."""
    from sorites.optics.tracing.lens import D_LINE_UM
    from sorites.optics.tracing.rays import beams, paths

    angles = [0.0, 0.7 * lens.field_deg]
    boxes = beams(lens, angles, 90.0, D_LINE_UM)
    rays = [
        [_rounded(path) for path in paths(lens, a, box, D_LINE_UM)]
        for a, box in zip(angles, boxes, strict=True)
    ]
    surfaces = [
        (
            round(float(np.squeeze(surface.geometry.cs.z)), 5),
            _radius(surface),
            bool(np.squeeze(surface.material_post.n(D_LINE_UM)) > 1.0001),
        )
        for surface in lens.surfaces[1:]
    ]
    return Layout(surfaces=surfaces, rays=rays, stop=lens.stop - 1)


def _rounded(path: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Round a path to 0.01 um."""
    return [(round(z, 5), round(y, 5)) for z, y in path]


def _radius(surface: Any) -> float:
    """Return the radius of curvature in mm, 0 for a flat surface."""
    radius = float(surface.geometry.radius)
    return round(radius, 5) if np.isfinite(radius) else 0.0


def lens_digest(lens: Lens) -> str:
    """Return a hash of the lens itself: equal for two files that describe the same lens under different
    names.
    """
    shapes = [_shape(surface) for surface in lens.surfaces[1:-1]]
    rims = [(i, round(rim, 6)) for i, rim in sorted(lens.rims.items())]
    vignetting = [tuple(round(value, 6) for value in vars(stated).values()) for stated in lens.vignetting]
    return digest(shapes, rims, vignetting, lens.stop, round(lens.epd_mm, 6), round(lens.field_deg, 6)).hex()


def _shape(surface: Any) -> tuple[Any, ...]:
    """Return radius, conic, even terms, distance to the next surface, and the indices behind it at the
    three wavelengths.
    """
    from sorites.optics.psf import LINES_UM

    geometry = surface.geometry
    terms = [float(f"{float(term):.6g}") for term in getattr(geometry, "coefficients", ()) or ()]
    behind = [round(float(np.squeeze(surface.material_post.n(line))), 6) for line in LINES_UM]
    return (
        round(float(geometry.radius), 6),
        round(float(getattr(geometry, "k", 0.0)), 6),
        terms,
        round(float(surface.thickness), 6),
        behind,
    )


def trace_file(path: str, folder: str, focus: str = "best", glasses: Glasses | None = None) -> dict[str, Any]:
    """Trace one prescription into the folder and return its row of the batch's table.

    A lens that the folder already has from the same prescription and settings is not traced again.

    Args:
        path: A .zmx, .seq, .len or (optiland's) .json file, or the name of one of optiland's objectives.
        folder: Folder of the lenses.
        focus: ``best`` or ``file``; see ``optics.tracing.blur.blur``.
        glasses: Glasses that override the catalogues.
    """
    from sorites.optics.tracing.assembly import OBJECTIVES
    from sorites.optics.tracing.prescription import Refused

    name = name_of(path)
    try:
        text = path if path in OBJECTIVES else Path(path).read_bytes().hex()
    except OSError as error:
        return _row(name, f"it cannot be read: {error.strerror}")
    cause = digest(text, focus, sorted((glasses or {}).items()), TRACING).hex()
    if (existing := _existing(Path(folder), name, cause)) is not None:
        return _row(name, "", existing)
    try:
        entry = trace_lens(read_lens(path, glasses), focus)
    except (Refused, ValueError, ArithmeticError, LookupError) as error:
        (Path(folder) / f"{name}{SUFFIX}").unlink(missing_ok=True)
        return _row(name, str(error) if isinstance(error, Refused) else f"it cannot be traced: {error}")
    save(replace(entry, about=entry.about.model_copy(update={"cause": cause})), Path(folder))
    return _row(name, "", entry.about)


def read_lens(path: str, glasses: Glasses | None = None) -> Lens:
    """Return the lens of a prescription file, by its ending, or one of optiland's objectives by name.

    Raises:
        Refused: It cannot be traced as a photographic lens.
    """
    from sorites.optics.tracing.assembly import OBJECTIVES, build, from_optiland, objective
    from sorites.optics.tracing.codev import parse_seq
    from sorites.optics.tracing.oslo import parse_len
    from sorites.optics.tracing.prescription import Refused, parse, read

    if path in OBJECTIVES:
        return objective(path)
    ending = Path(path).suffix.lower()
    if ending == ".json":
        return from_optiland(Path(path))
    if ending in MEASURED:
        raise Refused(
            f"a {ending} file is no prescription; measured PSFs need {option('as', 'psf')} and"
            f" {option('pitch_um', '3.5')}, a photograph of an edge {option('as', 'edge')}"
        )
    parse_with = {".seq": parse_seq, ".len": parse_len}.get(ending, parse)
    return build(read(Path(path), parse_with), as_glasses(glasses))


def name_of(path: str) -> str:
    """Return the name of the lens for a prescription."""
    from sorites.optics.tracing.assembly import OBJECTIVES

    return path if path in OBJECTIVES else Path(path).stem


def _row(name: str, reason: str, about: LensRecord | None = None) -> dict[str, Any]:
    return {
        "lens": name,
        "accepted": not reason,
        "reason": reason,
        "digest": about.lens if about else None,
        "substitutes": about.substitutes if about else {},
    }


def _existing(folder: Path, name: str, cause: str) -> LensRecord | None:
    """Return the record of the lens in the folder if it came from exactly this prescription and can be
    read.
    """
    if not is_file(folder / f"{name}{SUFFIX}"):
        return None
    try:
        about = load(folder, name).about
    except SoritesError:
        return None
    return about if about.cause == cause else None


def read_glasses(texts: Iterable[str]) -> dict[str, tuple[float, float, float]]:
    """Parse texts such as ``BK1=1.51009,63.46`` into (index, Abbe number, deviation) by glass name; the
    deviation of the partial dispersion from the normal line may be left out.
    """
    glasses = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        try:
            nd, vd, *more = map(float, numbers.split(","))
            (deviation,) = more or [0.0]
        except ValueError:
            nd = vd = deviation = math.nan
        if not (name and 1 < nd < math.inf and 0 < vd < math.inf and abs(deviation) < 1):
            raise SoritesError(
                f"{option('glass', None)}: expected NAME=ND,VD or NAME=ND,VD,DEVIATION such as"
                f" BK1=1.51009,63.46 (ND > 1, VD > 0), got {text!r}"
            )
        glasses[name] = nd, vd, deviation
    return glasses


def as_glasses(glasses: Glasses | None) -> dict[str, Glass]:
    """Return glasses of numbers by name."""
    from sorites.optics.tracing.prescription import Glass

    return {name: Glass("", *numbers) for name, numbers in (glasses or {}).items()}


# Batches
def trace_all(
    paths: Iterable[str],
    folder: Path,
    focus: str = "best",
    workers: int = 1,
    glasses: Glasses | None = None,
    bar: Bar | None = None,
) -> pl.DataFrame:
    """Trace a batch of prescriptions into a folder of lenses.

    A refused prescription does not end the batch. A lens that equals an earlier one is removed again and
    counts as refused.

    Args:
        paths: Prescriptions, folders of them, or names of optiland's objectives.
        folder: Folder of the lenses; the reasons of refusals go to its ``refused.csv``.
        focus: ``best`` or ``file``.
        workers: Lenses traced at a time.
        glasses: Glasses that override the catalogues.
        bar: Progress display.

    Returns:
        One row per prescription: lens, accepted, reason.
    """
    import polars as pl

    prescriptions = list(
        dict.fromkeys(prescription for path in paths for prescription in _prescriptions(path))
    )
    duplicates = [name for name, n in Counter(map(name_of, prescriptions)).items() if n > 1]
    if duplicates:
        raise SoritesError(
            f"two prescriptions would both become the lens {duplicates[0]}; rename one of the files"
        )
    _make_folder(folder)
    before = existing_names(folder)
    work = functools.partial(trace_file, folder=str(folder), focus=focus, glasses=dict(glasses or {}))
    tick = bar("tracing", len(prescriptions)) if bar else lambda n: None
    rows = []
    for row in _each(work, prescriptions, workers):
        rows.append(row)
        tick(1)
    _remove_duplicates(rows, folder, before)
    _report_substitutes(rows)
    schema = {"lens": pl.String, "accepted": pl.Boolean, "reason": pl.String}
    table = pl.DataFrame([{key: row[key] for key in schema} for row in rows], schema=schema)
    _keep_reasons(table, folder / "refused.csv")
    return table


def _report_substitutes(rows: Sequence[dict[str, Any]]) -> None:
    """Warn about accepted lenses with a glass that was replaced by its successor."""
    for row in rows:
        if row["accepted"] and row["substitutes"]:
            pairs = ", ".join(f"{used} for {name}" for name, used in sorted(row["substitutes"].items()))
            tell(
                Notice(
                    f"{row['lens']}: traced with successors of glasses that its catalogues lack ({pairs})."
                    f" Their indices differ slightly; to use those of the original, pass"
                    f" {option('glass', 'NAME=ND,VD')}",
                    code="successor",
                )
            )


def _prescriptions(path: str) -> list[str]:
    """Expand an objective, a file or a folder of prescriptions; raise an error for anything else."""
    from sorites.optics.tracing.assembly import OBJECTIVES

    where = Path(path)
    if path in OBJECTIVES or is_file(where):
        return [path]
    if is_dir(where):
        names = sorted(
            str(file) for file in where.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file()
        )
        if not names:
            raise SoritesError(f"no {', '.join(ENDINGS)} files in {path}")
        return names
    raise UnknownName(
        "lens file or objective",
        path,
        OBJECTIVES,
        "Pass .zmx, .seq, .len or .json files, folders of them, or names of optiland's objectives.",
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoritesError(
            f"cannot create the folder {folder}: {error.strerror}; choose another {option('out', 'DIR')}"
        ) from error


def _keep_reasons(table: pl.DataFrame, sheet: Path) -> None:
    """Write the refusals of this batch to a CSV file, keeping those of other lenses from earlier batches."""
    import polars as pl

    from sorites.io.tables import csv

    refused = table.filter(~pl.col("accepted"))
    if sheet.is_file():
        earlier = csv(sheet, infer_schema=True, schema=table.schema)
        refused = pl.concat([earlier.join(table, on="lens", how="anti"), refused])
    write_bytes(refused.write_csv().encode(), sheet)


def _each(
    work: functools.partial[dict[str, Any]], prescriptions: Sequence[str], workers: int
) -> Iterator[dict[str, Any]]:
    """Yield the row of each prescription in order, from this process or from several."""
    if workers == 1 or len(prescriptions) < 2:
        yield from map(work, prescriptions)
        return
    with (
        one_thread_each(),
        ProcessPoolExecutor(min(workers, len(prescriptions)), multiprocessing.get_context("spawn")) as pool,
    ):
        yield from pool.map(work, prescriptions)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit processes started within this context to one thread each, so that they do not compete for
    cores.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ |= dict.fromkeys(names, "1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _remove_duplicates(rows: list[dict[str, Any]], folder: Path, before: Sequence[str]) -> None:
    """Remove equal lenses, keeping the one that the folder had ``before``, or else the first of the batch."""
    batch = {row["lens"]: row for row in rows if row["accepted"]}
    first = _names_by_digest(folder, sorted(set(existing_names(folder)) - {row["lens"] for row in rows}))
    for name in [*(name for name in before if name in batch), *batch]:
        row = batch[name]
        twin = first.setdefault(row["digest"], name)
        if row["accepted"] and twin != name:
            (folder / f"{name}{SUFFIX}").unlink()
            row.update(accepted=False, reason=f"it is the same lens as {twin}")


def _names_by_digest(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the names of readable lenses in the folder by digest."""
    by_digest = {}
    for name in names:
        with suppress(SoritesError):
            by_digest[load(folder, name).about.lens] = name
    return by_digest
