"""Real trial servers for the tests of `autotune.server`, and the proof that none outlives its test."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_servers import Start, patient, those_who_mention

from autotune.domain.launch import ServerArgs
from autotune.domain.server import LaunchPlan, Readiness
from autotune.server.launcher import LocalLauncher
from autotune.server.session import LocalServer
from autotune.server.stopping import remove_scratch


@pytest.fixture
def launcher(fake_vllm: tuple[str, ...], tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(fake_vllm, "model", tmp_path / "logs", cache_dir=tmp_path / "cache")


@pytest.fixture
def plan(launcher: LocalLauncher) -> Iterator[LaunchPlan]:
    """A launch that is prepared and never made."""
    prepared = launcher.prepare(7, ServerArgs())
    yield prepared
    remove_scratch(prepared.mark)


@pytest.fixture
def start(launcher: LocalLauncher, tmp_path: Path) -> Iterator[Start]:
    """Start a server with a scenario of the fake and wait until it is ready, if it should be."""

    def start_server(scenario: object = "normal", *flags: str, ready: bool = True) -> LocalServer:
        args = ServerArgs(flags=flags, env={"FAKE_VLLM_SCENARIO": json.dumps(scenario)})
        server = launcher.start(launcher.prepare(0, args))
        servers.append(server)
        if ready:
            assert server.wait_ready(30, patient()) is Readiness.READY, server.read_log()
        return server

    servers: list[LocalServer] = []
    yield start_server
    for server in servers:
        server.stop(grace_s=0)
    assert those_who_mention(str(tmp_path)) == set()
