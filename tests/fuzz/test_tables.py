"""Tables of others, spoilt: predictions to import, counts, annotations, references, verdicts, model
facts, lenses, kernels.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save
from tests.fuzz import bounds, hostile, worlds

from sorites.analysis.filter.filtering import join_annotations, read_annotations
from sorites.analysis.filter.rules import VOTES, read_scores
from sorites.core.errors import SoritesError
from sorites.evaluation.imports.write import import_predictions
from sorites.io.paths import is_dir
from sorites.io.sealed_tensors import NO_DIGEST, seal_tensors
from sorites.lenses import store, tolerances
from sorites.lenses.trace import trace_all
from sorites.metrics.accuracy import _read as read_verdicts
from sorites.metrics.corruption import _read as read_reference
from sorites.metrics.line import read_model_facts
from sorites.optics.tracing import prescription
from sorites.shifts.aberration import load as load_kernels

PREDICTIONS = (
    'sample,label,pred,model,shift,severity,conf,top5,correct,params,params.iso,attrs.weather,error,score\na,1,1,m,clean,0,0.9,1;2;3,true,{},100,sunny,,0.5\nb,2,3,m,coma,2,0.1,"[3,'
    ' 4]",false,"{""a"": 1}",200,rain,,-0.5\n'
)
CNS = "pred_class,gt_class,img_dir\n" + "".join(
    f"22,22,x/snow/022_eagle/seed_0001_scale_{n}000.jpg\n" for n in "012"
)
COUNTS = "model,shift,severity,n,correct,light,param\nm,coma,1,10,7,,\nm,,,20,9,on,p3\n"
MAP = '[columns]\npred = "pred"\n[constants]\nsplit = "test"\n'
ZMX = (
    "UNIT MM X W X CM MR CPMM\nENPD 10\nFTYP 0 0 2 1\nXFLN 0 0\nYFLN 0 14\nSURF 0\n TYPE STANDARD\n CURV"
    " 0.0\n DISZ INFINITY\nSURF 1\n STOP\n TYPE STANDARD\n CURV 0.02\n DISZ 5\n GLAS N-BK7 0 0 1.5 64\nSURF"
    " 2\n TYPE EVENASPH\n PARM 2 1e-5\n CURV -0.02\n DISZ 90\nSURF 3\n TYPE STANDARD\n CURV 0.0\n DISZ 0\n"
)
TABLES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "judged.csv": ("image_id,label\ni,in\nj,out\nk,partial\n", lambda path: read_annotations(path)),
    "placed.csv": ("sample,shift,scale,outside\na,snow,1.5,true\n", lambda path: judge(path)),
    "reference.csv": ("shift,severity,error\nclean,,0.1\ncoma,1,0.4\ncoma,2,0.6\n", lambda path: read_reference(str(path))),
    "verdicts.csv": ("image_id,mine\ni,true\nj,false\n", lambda path: read_verdicts(path)),
    "facts.csv": ("model,parameters\nm,5\nn,6.5\n", lambda path: read_model_facts(path, "parameters")),
    "scores.csv": (",".join(("image_id", *VOTES, "outside")) + "\ni,1,2,3,4,true\nj,1,2,3,4,\n", lambda path: read_scores(path)),
    "refused.csv": ("lens,accepted,reason\nx,false,no\n", lambda path: store.reasons(path.parent)),
    "lens.zmx": (ZMX, lambda path: prescription.read(path)),
}  # fmt: skip


def judge(path: Path) -> None:
    images = pl.DataFrame({"image_id": ["i"], "sample_id": ["a"], "shift": ["snow"], "severity": [1.5]})
    join_annotations(images, read_annotations(path), "file")


@bounds.shares
def test_tables(share: float, tmp_path: Path) -> None:
    def run(case: tuple[str, int]) -> None:
        name, seed = case
        text, read = TABLES[name]
        data, path = worlds.spoil(name.replace(".zmx", ".txt"), text.encode(), seed), tmp_path / name
        if name not in ("lens.zmx", "refused.csv", "reference.csv", "facts.csv") and seed % 3 == 0:
            path = tmp_path / name.replace(".csv", ".parquet")
            whole = pl.read_csv(io.BytesIO(text.encode()))
            data = worlds.spoil(path.name, worlds.parquet(whole), seed)
        path.write_bytes(data)
        read(path)

    bounds.fuzz("tables", share, st.tuples(st.sampled_from(sorted(TABLES)), hostile.seeds), run)


@bounds.shares
def test_predictions(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"csv": PREDICTIONS, "cns": CNS, "counts": COUNTS}

    def run(case: tuple[str, int]) -> None:
        kind, seed = case
        rng = random.Random(seed)
        shutil.rmtree("run", ignore_errors=True)
        for left in Path().glob("p.*"):
            left.unlink()
        if rng.random() < 0.4:
            frame = pl.read_csv(io.BytesIO(texts[kind].encode()))
            Path("p.parquet").write_bytes(worlds.spoil("p.parquet", worlds.parquet(frame), seed))
        else:
            Path("p.csv").write_bytes(worlds.spoil("p.csv", texts[kind].encode(), seed))
        Path("m.toml").write_text(MAP)
        import_predictions(
            list(Path().glob("p.*")),
            kind,
            "run",
            columns="m.toml" if kind == "csv" and seed % 4 == 0 else None,
        )

    bounds.fuzz("predictions", share, st.tuples(st.sampled_from(sorted(texts)), hostile.seeds), run)


def packed(path: Path, rng: random.Random, seed: int) -> bytes:
    """Return a safetensors file with its description or one of its arrays changed, or its bytes."""
    with safe_open(str(path), framework="numpy") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["about"])
    arrays["kernels"] = arrays["kernels"][..., :5, :5]
    kind = rng.choice(("about", "about", "array", "bytes"))
    if kind == "about":
        return sealed(arrays, hostile.replaced(about, seed))
    if kind == "array":
        name = rng.choice(sorted(arrays))
        odd = (
            np.zeros((2, 3)),
            arrays[name][..., :1],
            arrays[name] * np.nan,
            arrays[name].astype(np.int8),
            -arrays[name],
            arrays[name][:0],
            arrays[name][None],
        )
        arrays[name] = np.ascontiguousarray(rng.choice(odd))
        return sealed(arrays, about)
    return hostile.spoilt(sealed(arrays, about), seed)


def sealed(arrays: dict[str, np.ndarray], about: object) -> bytes:
    """Return a file whose digest is right, so that a reader looks at what it contains."""
    return seal_tensors(save(arrays, {"about": json.dumps(about), **NO_DIGEST}))


@bounds.shares
def test_lenses(share: float, tmp_path: Path) -> None:
    from sorites.reports.figures.lenses import sheet

    rng_of, kernels = random.Random, io.BytesIO()
    np.save(kernels, np.zeros((8, 5, 3, 25, 25), np.float32))
    lens, error = (
        store.builtin() / "TessarLens.safetensors",
        next(tolerances.builtin().glob("*.tilt.safetensors")),
    )

    # the files of a whole disk are not looked through
    names = [word for word in hostile.WORDS if not is_dir(word)]

    def run(case: tuple[str, int]) -> None:
        kind, seed = case
        rng = rng_of(seed)
        if kind == "lens":
            (tmp_path / "a.safetensors").write_bytes(packed(lens, rng, seed))
            sheet(store.load(tmp_path, "a"))
            store.rank_lenses(tmp_path)
        elif kind == "tolerance":
            (tmp_path / "t.tilt.safetensors").write_bytes(packed(error, rng, seed))
            tolerances.load.cache_clear()
            from sorites.core import shift

            shift("tilt", tolerances=str(tmp_path / "t.tilt.safetensors"))(
                np.zeros((30, 30, 3), np.float32), 1.0, np.random.default_rng(0)
            )
        elif kind == "kernels":
            (tmp_path / "k.npy").write_bytes(hostile.spoilt(kernels.getvalue()[:4000], seed))
            load_kernels(tmp_path / "k.npy")
        else:
            with suppress(SoritesError):
                trace_all([rng.choice(names)], tmp_path / "out")

    bounds.fuzz(
        "lenses",
        share,
        st.tuples(
            st.sampled_from(("lens", "lens", "tolerance", "tolerance", "kernels", "names")), hostile.seeds
        ),
        run,
    )
