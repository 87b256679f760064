"""A `vllm` that the interpreter of the tests imports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_package import VllmPackage, install

from autotune.host.validator import VllmValidator


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> VllmPackage:
    monkeypatch.setenv("PYTHONPATH", str(folder / "packages"))
    monkeypatch.setenv("ASKED", str(folder / "asked"))
    monkeypatch.setenv("HUNG", str(folder / "hung"))
    return VllmPackage(folder / "packages")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VllmPackage:
    """A package of the test's own."""
    return _package(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmValidator]:
    """One that the tests of a file share: answers do not depend on each other."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _package(tmp_path_factory.mktemp("shared"), monkeypatch)
        with VllmValidator(install(), "tiny") as validator:
            yield validator
