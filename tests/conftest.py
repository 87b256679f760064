"""What tests of several areas share: the fake vLLM, whose abilities `tests/fakes/fake_vllm.py` lists."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more of what else this machine does than of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_FAKES = Path(__file__).parent / "fakes"


@pytest.fixture(scope="session")
def fake_vllm() -> tuple[str, ...]:
    """The words before `serve`, as in `LocalLauncher(command=...)`."""
    return (sys.executable, "-S", "-I", str(_FAKES / "fake_vllm.py"))


@pytest.fixture
def fake_vllm_program(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake as one executable, as in `--vllm PATH`."""
    monkeypatch.setenv("FAKE_VLLM_PYTHON", sys.executable)
    return _FAKES / "vllm"
