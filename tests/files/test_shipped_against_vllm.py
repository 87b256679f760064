from pathlib import Path

import pytest

from autotune.decide.space.check import check_space
from autotune.decide.space.default_space import default_space
from autotune.domain.machine import Device, VllmInstall
from autotune.domain.workload import Workload
from autotune.files.shipped import SEARCH_SPACES, shipped_folder
from autotune.files.spaces import load_space
from autotune.host.machine import read_machine
from autotune.host.vllm import find_vllm

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def vllm() -> VllmInstall:
    found = find_vllm(None)
    assert found.flags
    return found


SHIPPED = [path.stem for path in shipped_folder(SEARCH_SPACES).glob("cpu-*.toml")]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_installed_vllm_takes_the_shipped_space(name: str, vllm: VllmInstall, tmp_path: Path) -> None:
    assert vllm.device is Device.CPU
    assert check_space(load_space(name, tmp_path), vllm) == ()


def test_the_installed_vllm_takes_the_default_space(vllm: VllmInstall) -> None:
    assert check_space(default_space(read_machine(), vllm, None, Workload()), vllm) == ()
