"""The load bench against the fake vLLM: a real process, its counters, and its ways to go wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import RequestState
from autotune.domain.workload import Lengths, Workload

pytestmark = pytest.mark.usefixtures("calm_client")
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(64),
    output_tokens=Lengths.fixed(12),
    prompts=4,
    streams=(1, 4),
    min_window_s=0.3,
    max_window_s=2.0,
)


@contextmanager
def serving(command: tuple[str, ...], scenario: object, *flags: str) -> Iterator[str]:
    """The base URL of a fake vLLM that is ready; all its processes are gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, "serve", "m", "--host", "127.0.0.1", "--port", str(port), *flags],
        env={**os.environ, "FAKE_VLLM_SCENARIO": json.dumps(scenario)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_ready(url, process)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def wait_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            continue
    raise AssertionError("the fake vLLM did not become ready")


def counter(url: str, name: str) -> float:
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    match = re.search(rf"^vllm:{name}_total{{.*}} (\S+)$", text, re.MULTILINE)
    assert match is not None
    return float(match[1])


SPECULATIVE = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 6}')


@pytest.mark.parametrize(
    ("scenario", "flags"),
    [
        ({}, ()),
        ({"acceptance": 0.5}, SPECULATIVE),
        ({"chop_bytes": 5, "texts": ["\u2028", "\x85", '"error"']}, ()),
        ({"tpot_s": 0.002}, ("--max-num-seqs", "2")),
    ],
)
def test_what_was_counted_agrees_with_the_server(
    fake_vllm: tuple[str, ...], no_interrupt: Interrupt, scenario: dict[str, object], flags: tuple[str, ...]
) -> None:
    bench = LoadBench("m", WORKLOAD)
    with serving(fake_vllm, scenario, *flags) as url:
        assert bench.smoke(url, 20.0, no_interrupt) is None
        before = {name: counter(url, name) for name in ("generation_tokens", "prompt_tokens")}
        measured = bench.measure(url, 4, None, no_interrupt)
        assert measured is not None
        assert (measured.point.failed, measured.point.errors) == (0, {})
        assert measured.point.done > 0
        generated = counter(url, "generation_tokens") - before["generation_tokens"]
        prefilled = counter(url, "prompt_tokens") - before["prompt_tokens"]
        repeated = bench.measure(url, 4, measured.point.total_s, no_interrupt)
        assert repeated is not None
        assert counter(url, "prefix_cache_queries") > 0
        assert counter(url, "prefix_cache_hits") == 0
    done = [r for r in measured.requests if r.state is RequestState.DONE]
    cut = [r for r in measured.requests if r.state is RequestState.CUT]
    known = sum(r.output_tokens or 0 for r in done)
    # What the 4 cut requests had produced is not in any usage: at most 12 tokens each.
    assert known <= generated <= known + 12 * len(cut)
    assert 64 * len(done) <= prefilled <= 64 * len(measured.requests)
    assert len(cut) <= 4


@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        ("http_500", "HTTP 500: Internal server error"),
        ("error_event", "error in the stream: EngineCore encountered an issue. See stack trace (above)"),
        ("truncated_stream", "the connection broke inside the answer"),
        ({"omit_usage": True}, "the stream carried no usage"),
        ("dies_at_first_request", "HTTP 500: EngineCore encountered an issue. See stack trace (above)"),
        ({"preset": "killed_mid_load", "die_at_request": 1}, "the server closed the connection"),
    ],
)
def test_smoke_says_what_is_wrong(
    fake_vllm: tuple[str, ...], no_interrupt: Interrupt, scenario: object, error: str
) -> None:
    with serving(fake_vllm, scenario) as url:
        found = LoadBench("m", WORKLOAD).smoke(url, 20.0, no_interrupt)
    assert found is not None
    assert found.startswith(error)


def test_smoke_with_another_model_name_or_too_short_a_context(
    fake_vllm: tuple[str, ...], no_interrupt: Interrupt
) -> None:
    with serving(fake_vllm, {}, "--max-model-len", "70") as url:
        assert (
            LoadBench("n", WORKLOAD).smoke(url, 20.0, no_interrupt)
            == "HTTP 404: The model `n` does not exist."
        )
        error = LoadBench("m", WORKLOAD).smoke(url, 20.0, no_interrupt)
    assert error is not None
    assert error.startswith("HTTP 400: This model's maximum context length is 70 tokens.")


@pytest.mark.parametrize("scenario", ["dies_mid_load", "killed_mid_load"])
def test_a_server_that_dies_under_load(
    fake_vllm: tuple[str, ...], no_interrupt: Interrupt, scenario: str
) -> None:
    workload = Workload(
        prompt_tokens=Lengths.fixed(64),
        output_tokens=Lengths.fixed(12),
        prompts=4,
        min_window_s=60,
        max_window_s=60,
    )
    with serving(fake_vllm, scenario) as url:
        measured = LoadBench("m", workload).measure(url, 4, None, no_interrupt)
    assert measured is not None
    assert 12 <= measured.point.failed <= 40
    assert "cannot connect: Connection refused" in measured.point.errors
    assert measured.broken_off in measured.point.errors
