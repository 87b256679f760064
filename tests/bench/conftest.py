"""Fixtures of the bench tests."""

import time
from collections.abc import Iterator

import pytest
from sse_server import SseServer

from autotune.domain.interrupt import Interrupt


@pytest.fixture
def sse_server() -> Iterator[SseServer]:
    with SseServer().running() as server:
        yield server


@pytest.fixture
def calm_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """No point is repeated or flagged because the machine of the test is busy with something else."""
    monkeypatch.setattr("autotune.bench.measured.client_flag", lambda *_: None)


@pytest.fixture
def no_interrupt() -> Interrupt:
    return Interrupt(time.monotonic, time.monotonic() + 3600)
