"""Kernels and lenses by the command line: tables as numbers, traced files tensor by tensor, and
images through a lens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sorites import core
from tools.net import images
from tools.net.hashes import Entry, of_csv, of_file, of_folder, of_leaves, of_plain
from tools.net.home import Task, typed
from tools.net.shifts import STACK, of_shift, write_stack

TRIPLET = (
    (0.0454265, 3.25896, "N-SK16"), (-0.0022948, 6.00755, ""), (-0.0450181, 0.99997, "F2"),
    (0.0492807, 4.75041, ""), (0.0125496, 2.95208, "MINE"), (-0.0543616, 42.20778, ""),
)  # fmt: skip
"""Curvature, distance to the next surface, glass behind it; one glass is in no catalogue."""


def tasks() -> list[Task]:
    return [
        Task(("optics/kernels", "words/drawn/kernels"), kernels),
        Task(("optics/lenses", "words/drawn/lenses"), lenses),
        Task(("optics/traced",), traced),
        Task(("optics/tolerance",), tolerance),
    ]


def prescription(aspheric: bool = False) -> str:
    """A triplet of fifty millimetres as a lens designer's file has it; or with an asphere, rims and
    vignetting.
    """
    text = (
        "VERS 140124 258\nMODE SEQ\nUNIT MM X W X CM MR CPMM\nFNUM 5.0 0\nGCAT SCHOTT\nWAVM 1 0.5875618"
        " 1\nPWAV 1\n"
    )
    text += "FTYP 0 0 3 3 0 0 0\nXFLN 0 0 0\nYFLN 0 14 20\n" + (
        "VDYN 0 0.02 0.05\nVCYN 0 0.1 0.2\n" if aspheric else ""
    )
    text += "SURF 0\n TYPE STANDARD\n CURV 0.0\n DISZ INFINITY\n"
    for i, (bent, thick, glass) in enumerate(TRIPLET, start=1):
        setting, named = (
            " STOP\n" if i == 4 else "",
            f" GLAS {glass} 0 0 1.5 40 0 0 0 0 0 0\n" if glass else "",
        )
        bend = (
            " TYPE EVENASPH\n CONI -0.2\n PARM 2 1e-7\n DIAM 9 1\n CLAP 0 9.5\n"
            if aspheric and i == 1
            else " TYPE STANDARD\n"
        )
        text += f"SURF {i}\n{setting}{bend} CURV {bent} 0 0 0 0\n DISZ {thick}\n{named}"
    return text + "SURF 7\n TYPE STANDARD\n CURV 0.0\n DISZ 0\n"


def kernels() -> Iterator[Entry]:
    yield from of_csv(typed("kernels", "--out", "kernels.png", "--format", "csv"), "optics/kernels/table")
    yield from (("words/drawn/kernels" + part, digest) for part, digest in of_file(Path("kernels.png")))
    write_stack(Path(STACK))
    said = typed("kernels", "--kernels", STACK, "--out", "own.png", "--format", "json")
    yield from of_leaves(json.loads(said), "optics/kernels/of a file")
    for criterion in ("mtf50", "area", "ssim", "psnr"):
        words = ("--criterion", criterion, "--mode", "5", "--mode", "8", "--level", "2", "--format", "csv")
        yield from of_csv(typed("kernels", "match", *words), f"optics/kernels/match/{criterion}")
    own = (
        "--f-number",
        "4",
        "--pixel",
        "3.5",
        "--wavelengths",
        "0.61,0.54,0.47",
        "--mode",
        "11",
        "--level",
        "1",
    )
    yield from of_csv(typed("kernels", "match", *own, "--format", "csv"), "optics/kernels/match/of a lens")


def lenses() -> Iterator[Entry]:
    yield from of_csv(typed("lens", "list", "--format", "csv"), "optics/lenses/list/csv")
    yield from of_leaves(json.loads(typed("lens", "list", "--format", "json")), "optics/lenses/list/json")
    yield "optics/lenses/select", of_plain(typed("lens", "select", "--n", "5", "--out", "five"))
    yield from of_csv(typed("lens", "list", "--lenses", "five", "--format", "csv"), "optics/lenses/list/five")
    for i, size in enumerate(((97, 131), (300, 420))):
        images.save(Path(f"p{i}.png"), images.scene(i, *size))
    typed("lens", "photo", "DoubleGauss", "p0.png", "p1.png", "--out", "taken", "--corner", "0.8")
    yield from ((f"optics/lenses/photo/{part}", digest) for part, digest in of_folder(Path("taken")))
    typed("lens", "show", "Telephoto", "--out", "sheet.png")
    typed("lens", "space", "--n", "4", "--out", "space.png")
    for shift, words in (
        ("coma", ()),
        ("camera", ()),
        ("jpeg", ("--severity", "50")),
        ("lens", ("--option", "padding=zeros")),
    ):
        typed("show", shift, "p1.png", *words, "--seed", "1", "--out", f"strip {shift}.png")
    for path in sorted(Path().glob("s*.png")):
        yield from ((f"words/drawn/lenses/{path.stem}{part}", digest) for part, digest in of_file(path))


def traced() -> Iterator[Entry]:
    """An objective of optiland's and a designer's file, and the shifts over both."""
    Path("triplet.zmx").write_text(prescription(), encoding="utf-8")
    words = ("CookeTriplet", "triplet.zmx", "--glass", "MINE=1.62,60.3", "--out", "own", "--format", "csv")
    yield from of_csv(typed("lens", "import", *words), "optics/traced/table")
    yield from of_csv(typed("lens", "list", "--lenses", "own", "--format", "csv"), "optics/traced/list")
    yield from ((f"optics/traced/{part}", digest) for part, digest in of_folder(Path("own")))
    Path("asphere.zmx").write_bytes(prescription(aspheric=True).encode("utf-16"))
    typed(
        "lens",
        "import",
        "triplet.zmx",
        "asphere.zmx",
        "--glass",
        "MINE=1.62,60.3",
        "--focus",
        "file",
        "--out",
        "as filed",
    )
    yield from ((f"optics/traced/as filed/{part}", digest) for part, digest in of_folder(Path("as filed")))
    for name in ("lens", "lens_whole"):
        yield from of_shift(core.shift(name, lenses="own"), f"optics/traced/shifts/{name}")


def tolerance() -> Iterator[Entry]:
    """One lens with an element out of place, each of the three ways, and the shift over one of them."""
    told = {
        "decentre": ("--stops", "5,40"),
        "tilt": ("--stops", "10", "--element", "2"),
        "spacing": ("--stops", "30", "--refocus"),
    }
    for kind, words in told.items():
        asked = (
            "lens",
            "tolerance",
            "CookeTriplet",
            "--of",
            kind,
            *words,
            "--field",
            "0.5",
            "--out",
            "moved",
            "--format",
            "csv",
        )
        yield from of_csv(typed(*asked), f"optics/tolerance/{kind}")
    yield from ((f"optics/tolerance/{part}", digest) for part, digest in of_folder(Path("moved")))
    yield from of_shift(core.shift("decentre", tolerances="moved"), "optics/tolerance/shifts/decentre")
