"""The notebooks run from a clean kernel on the studies beside them, and are kept without outputs."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def test_those_that_are_documented_are_there() -> None:
    assert NAMES == ["compare_studies", "explore", "own_objective"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_no_output_is_kept(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(document)
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["source"]
        assert not cell["metadata"], "metadata of an editor"


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_runs_from_a_clean_kernel(path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "notebooks")
    data = {file: file.read_bytes() for file in folder.glob("data/*.db")}
    notebook = nbformat.read(folder / path.name, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output.text
    figures = [
        o for cell in notebook.cells for o in cell.get("outputs", []) if "plotly" in str(o.get("data"))
    ]
    assert figures
    assert {file: file.read_bytes() for file in data} == data
