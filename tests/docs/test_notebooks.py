"""The notebooks of the docs, executed as a user would, with warnings shown; each checks a number that it shows."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"

# Per notebook, code that checks its numbers against the rows of its run.
CHECKS = {
    "own_model": """
        rows = run.collect().filter(pl.col("shift") == "clean")
        value = accuracy.filter(pl.col("shift") == "clean")["value"][0]
        assert rows.height == 12 and value == sum(rows["correct"]) / 12 > 0.6, value
        assert open("mine.html").read().count("defocus_disk") > 1
    """,
    "which_lens": """
        rows = run.collect().filter(pl.col("shift") == "lens")
        assert lenses["lens"].n_unique() == 15 and rows["sample_id"].n_unique() == 4
        assert abs(lenses["value"].mean() - rows["correct"].cast(float).mean()) < 1e-9
    """,
    "abstain": """
        clean = run.collect().filter((pl.col("shift") == "clean") & (pl.col("output") == "label"))
        assert guard.rates[0].alarm.n > 0 and clean["sample_id"].n_unique() == 40
        known = {r.shift: r for r in guard.rates}["clean"]
        assert known.alarm.value <= 0.3 and isinstance(verdict.alarm, bool)
    """,
    "quantised": """
        a, b = (run.collect().filter((pl.col("model") == m) & (pl.col("shift") == "clean")).sort("sample_id")
                for m in ("full", "int8"))
        assert a.height == b.height == 16 and a["correct"].mean() > 0.6
        assert a["conf"].to_list() != b["conf"].to_list()
        assert {m.name for m in Path(".").glob("*.onnx")} == {"full.onnx", "int8.onnx"}
    """,
    "own_shift": """
        by = dict(answer.select("severity", "value").rows())
        rows = run.collect()
        assert by[4.0] == rows.filter(pl.col("severity") == 4.0)["correct"].cast(float).mean() < by[0.0]
    """,
}


def test_every_notebook_is_checked() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} - {"index"} == set(CHECKS)


def read(path: Path) -> Any:
    """Read a notebook in the format of MyST-NB."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(path.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of Jupyter itself
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_it_runs_without_warnings_and_its_numbers_hold(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs the extra docs")
    import nbformat

    notebook = read(FOLDER / f"{name}.md")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    check = "from pathlib import Path\nimport polars as pl\n" + textwrap.dedent(CHECKS[name])
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in said if "Warning" in text], said
    # Progress bars are displays that replace themselves, not lines of control characters.
    assert not [text for text in said if "\x1b[" in text], said
