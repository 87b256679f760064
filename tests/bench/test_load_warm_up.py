"""The discarded passes before the first point of a server."""

from collections import Counter
from dataclasses import replace

import pytest
from sse_server import Script, SseServer

from autotune.bench import warm_up
from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths, Workload

WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12), output_tokens=Lengths.fixed(40), prompts=5, streams=(1, 2, 4)
)
PASS = sum(WORKLOAD.streams)


def test_every_stream_count_is_sent_shortly(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.1)
    assert LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt) is None
    assert len(sse_server.requests) == 2 * PASS  # it was as fast the second time
    assert {request["max_tokens"] for request in sse_server.requests} <= set(range(4, 9))
    assert {len(request["prompt"]) for request in sse_server.requests} == {12}  # type: ignore[arg-type]
    salts = Counter(str(request["cache_salt"]) for request in sse_server.requests)
    assert set(salts.values()) == {1}


@pytest.mark.parametrize(("compiles_until", "passes"), [(PASS, 3), (99, 2)])
def test_it_goes_on_while_it_gets_faster(
    sse_server: SseServer, no_interrupt: Interrupt, compiles_until: int, passes: int
) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.3 if number < compiles_until else 0.05)
    assert LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt) is None
    assert len(sse_server.requests) == passes * PASS


def test_it_ends_after_three_passes(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.4 / 3 ** (number // PASS))
    assert LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt) is None
    assert len(sse_server.requests) == 3 * PASS


def test_no_further_pass_begins_late(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "_LAST_BEGIN_S", 0.0)
    assert LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt) is None
    assert len(sse_server.requests) == PASS


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(status=500), "HTTP 500: made to fail"),
        (Script(error_after=1), "error in the stream: EngineCore died"),
        (Script(hang_after=1), "the server sent nothing for 0.8 s"),
    ],
)
def test_what_is_wrong_is_said(
    sse_server: SseServer, no_interrupt: Interrupt, script: Script, error: str
) -> None:
    sse_server.answer = lambda number: Script() if number < 3 else script
    assert LoadBench("m", WORKLOAD, idle_s=0.8).warm_up(sse_server.url, no_interrupt) == error
    assert len(sse_server.requests) == PASS  # the count at which they fail is the last


def test_one_of_very_many_may_fail(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(status=500) if number == 7 else Script()
    many = replace(WORKLOAD, streams=(120,))
    assert LoadBench("m", many).warm_up(sse_server.url, no_interrupt) is None


def test_it_can_be_interrupted(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    def answer(number: int) -> Script:
        no_interrupt.request(Interruption.USER)
        return Script(hang_after=0)

    sse_server.answer = answer
    assert LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt) is None
    assert no_interrupt.reason is Interruption.USER
    assert len(sse_server.requests) == 1


def test_it_has_a_limit(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.bench.load.MAX_WARM_UP_S", 0.2)
    monkeypatch.setattr("autotune.bench.load._PROMPTS_S", 0.1)
    sse_server.answer = lambda number: Script(hang_after=0, drips=True)
    error = LoadBench("m", WORKLOAD).warm_up(sse_server.url, no_interrupt)
    assert error == "the requests before the first point were not answered within 0.3 s"
