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
def no_interrupt() -> Interrupt:
    return Interrupt(time.monotonic, time.monotonic() + 3600)
