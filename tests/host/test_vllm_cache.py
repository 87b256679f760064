"""What a vLLM said is kept for as long as it is true, and no longer."""

import os
from pathlib import Path

import pytest
from fake_environment import FakeEnvironment

from autotune.domain.machine import VllmInstall
from autotune.errors import EnvironmentFault
from autotune.host.vllm import find_vllm


def _find(environment: FakeEnvironment) -> VllmInstall:
    return find_vllm(str(environment.root))


def _kept(cache: Path) -> Path:
    (kept,) = (cache / "autotune").iterdir()
    return kept


def test_a_vllm_is_started_once_and_then_remembered(fake_environment: FakeEnvironment) -> None:
    first = _find(fake_environment)
    assert _find(fake_environment) == first
    assert fake_environment.started() == 1


def test_an_upgrade_is_noticed(fake_environment: FakeEnvironment) -> None:
    _find(fake_environment)
    (old,) = fake_environment.site.glob("vllm-*.dist-info")
    old.rename(old.with_name("vllm-0.33.0.dist-info"))
    fake_environment.install("vllm", "0.33.0")
    assert _find(fake_environment).version == "0.33.0"


@pytest.mark.parametrize("name", ["vllm-0.31.0", "torch-2.12.0+cu130"])
def test_a_reinstall_of_the_same_version_is_asked_again(fake_environment: FakeEnvironment, name: str) -> None:
    _find(fake_environment)
    record = fake_environment.site / f"{name}.dist-info/RECORD"
    os.utime(record, ns=(0, record.stat().st_mtime_ns + 1))
    _find(fake_environment)
    assert fake_environment.started() == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b"\xff\xfe"])
def test_a_corrupt_cache_is_ignored_and_written_again(
    fake_environment: FakeEnvironment, cache: Path, content: bytes
) -> None:
    first = _find(fake_environment)
    good = _kept(cache).read_bytes()
    _kept(cache).write_bytes(content)
    assert _find(fake_environment) == first
    assert fake_environment.started() == 2
    assert _kept(cache).read_bytes() == good


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    fake_environment: FakeEnvironment, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the directory should be")
    assert _find(fake_environment).version == "0.31.0"
    assert "cannot be kept" in caplog.text


def test_an_editable_vllm_is_asked_every_time(fake_environment: FakeEnvironment) -> None:
    fake_environment.write(
        "vllm-0.31.0.dist-info/direct_url.json", '{"url": "file:///src/vllm", "dir_info": {"editable": true}}'
    )
    _find(fake_environment)
    _find(fake_environment)
    assert fake_environment.started() == 2


def test_a_failure_is_not_remembered(fake_environment: FakeEnvironment) -> None:
    fake_environment.write("vllm/__init__.py", "raise RuntimeError('no driver')")
    with pytest.raises(EnvironmentFault, match="RuntimeError: no driver"):
        _find(fake_environment)
    fake_environment.write("vllm/__init__.py", "")
    assert _find(fake_environment).version == "0.31.0"
