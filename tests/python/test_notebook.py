"""The example notebook runs from top to bottom, and draws; skipped where nbclient or ipykernel is not installed."""
import pathlib

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
kNotebooks = sorted((pathlib.Path(__file__).resolve().parents[2] / "examples/notebook").glob("*.ipynb"))


def test_there_is_one():
    assert kNotebooks


@pytest.mark.parametrize("path", kNotebooks, ids=lambda p: p.stem)
def test_notebook(path, tmp_path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert not any(c.get("outputs") for c in notebook.cells), "commit it without outputs"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    drawn = [o["data"]["text/html"] for c in notebook.cells for o in c.get("outputs", []) if "text/html" in o.get("data", {})]
    assert len(drawn) == 4 and all("<svg" in d and "<script" not in d and len(d) <= 200_000 for d in drawn)
