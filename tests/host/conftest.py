"""Environments for the tests of `autotune.host`, and a cache directory of the test's own."""

from pathlib import Path

import pytest
from fake_environment import FakeEnvironment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, so that no test sees or leaves anything in the real one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    """A real virtual environment with nothing in it, not even pip."""
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    return FakeEnvironment.create(tmp_path / "venv", tmp_path / "starts")


@pytest.fixture
def fake_environment(empty_environment: FakeEnvironment) -> FakeEnvironment:
    """The same with a vLLM 0.31.0."""
    empty_environment.add_vllm()
    return empty_environment
