"""What the server says of itself during a point, held against what the client sees, over real HTTP."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sse_server import Script, SseServer

from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import FlagKind, MeasuredPoint
from autotune.domain.workload import Lengths, Workload
from autotune.files.effective import VLLM_EFFECTIVE, read_effective

pytestmark = pytest.mark.usefixtures("calm_client")
COUNTERS = read_effective(VLLM_EFFECTIVE).counters
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12),
    output_tokens=Lengths.fixed(8),
    prompts=5,
    streams=(4,),
    min_window_s=0.6,
    max_window_s=0.6,
)
EXPLAINS = {FlagKind.MISCOUNTED, FlagKind.PREFIX_HITS, FlagKind.ADMISSION_BOUND, FlagKind.PREEMPTED}


def measure(server: SseServer, interrupt: Interrupt, workload: Workload = WORKLOAD) -> MeasuredPoint:
    server.answer = lambda number: Script(ttft_s=0.01, tpot_s=0.004)
    found = LoadBench("m", workload, counters=COUNTERS).measure(server.url, 4, None, interrupt)
    assert found is not None
    assert found.broken_off is None
    return found


def flags(found: MeasuredPoint) -> dict[FlagKind, str]:
    return {flag.kind: flag.text for flag in found.point.flags if flag.kind in EXPLAINS}


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """In so short a window a busy machine alone can make a difference of 2 %."""
    monkeypatch.setattr("autotune.decide.server_counts.MAX_TOKEN_DIFFERENCE", 0.2)


def test_a_server_that_counts_the_same(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.counters = dict
    found = measure(sse_server, no_interrupt)
    server = found.point.server
    assert flags(found) == {}
    assert server is not None
    assert server.generation_tokens is not None
    assert server.out_tok_s == pytest.approx(found.point.out_tok_s, rel=0.3)
    assert server.running == pytest.approx(4, abs=1)
    assert server.waiting == pytest.approx(0, abs=0.5)
    assert server.prefix_hit_rate is None


@pytest.mark.parametrize("metrics", [None, lambda: {"other": 1.0}])
def test_a_server_without_metrics(
    sse_server: SseServer, no_interrupt: Interrupt, metrics: Callable[[], dict[str, float]] | None
) -> None:
    sse_server.counters = metrics
    bench = LoadBench("m", WORKLOAD)  # nobody knows the names of such a server's counters
    sse_server.answer = lambda number: Script(ttft_s=0.01, tpot_s=0.004)
    found = bench.measure(sse_server.url, 4, None, no_interrupt)
    assert found is not None
    assert found.broken_off is None
    assert found.point.server is None or found.point.server.generation_tokens is None
    assert flags(found) == {}


def test_a_server_that_counts_differently(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.counters = dict
    sse_server.counts_twice = True
    found = measure(sse_server, no_interrupt)
    assert found.point.is_suspect
    assert flags(found).keys() == {FlagKind.MISCOUNTED}
    assert "output tokens per second, the client" in flags(found)[FlagKind.MISCOUNTED]


@pytest.mark.parametrize("shared", [0, 6])
def test_prompts_found_in_the_prefix_cache(
    sse_server: SseServer, no_interrupt: Interrupt, shared: int
) -> None:
    sse_server.counters = lambda: {
        "prefix_cache_queries_total": 10.0 * sse_server.generated,
        "prefix_cache_hits_total": 3.0 * sse_server.generated,
    }
    found = measure(sse_server, no_interrupt, replace(WORKLOAD, shared_prefix_tokens=shared))
    assert found.point.server is not None
    assert found.point.server.prefix_hit_rate == pytest.approx(0.3)
    # They are wanted where the workload shares its beginnings.
    assert flags(found).keys() == (set() if shared else {FlagKind.PREFIX_HITS})


def test_a_server_that_lets_in_fewer_than_there_are_streams(
    sse_server: SseServer, no_interrupt: Interrupt
) -> None:
    sse_server.counters = dict
    sse_server.max_running = 2
    found = measure(sse_server, no_interrupt)
    text = "the server worked on 2 requests at once for 4 streams; 2 waited in its queue"
    assert flags(found) == {FlagKind.ADMISSION_BOUND: text}


def test_a_server_that_preempts(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.counters = lambda: {"num_preemptions_total": float(len(sse_server.requests))}
    found = measure(sse_server, no_interrupt)
    assert flags(found).keys() == {FlagKind.PREEMPTED}
