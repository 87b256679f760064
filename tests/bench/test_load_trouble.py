"""Servers that are silent, half dead or change their speed: a failed or a suspect point, and why."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from sse_server import Script, SseServer

from autotune.bench import load, measured, point
from autotune.bench.load import LoadBench
from autotune.decide.failures.behaviour import is_silence
from autotune.decide.steadiness import stalled
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import ClientLoad, Flag, FlagKind, MeasuredPoint
from autotune.domain.trial import Interruption
from autotune.domain.workload import Lengths, Workload

pytestmark = pytest.mark.usefixtures("calm_client")
WORKLOAD = Workload(
    prompt_tokens=Lengths.fixed(12),
    output_tokens=Lengths.fixed(8),
    prompts=5,
    streams=(1, 4),
    min_window_s=0.9,
    max_window_s=0.9,
)
STEADY = Script(ttft_s=0.01, tpot_s=0.004)
"""A request takes about 40 ms, so 4 streams send some 100 a second."""
PAUSE_S = 0.7


def measure(server: SseServer, interrupt: Interrupt, **options: object) -> MeasuredPoint:
    workload = options.pop("workload", WORKLOAD)
    bench = LoadBench("m", workload, **options)  # type: ignore[arg-type]
    found = bench.measure(server.url, 4, None, interrupt)
    assert found is not None
    return found


def kinds(flags: tuple[Flag, ...]) -> list[FlagKind]:
    """Without changes of speed, which the machine of the test can have by itself."""
    return [flag.kind for flag in flags if flag.kind is not FlagKind.UNSTEADY]


def drifts(flags: tuple[Flag, ...]) -> list[str]:
    return [flag.text for flag in flags if flag.kind is FlagKind.UNSTEADY]


def at_windows(server: SseServer, action: Callable[[int], object]) -> None:
    """Call `action` with the number of each window, from 0, when it begins: then the metrics are looked at.

    A window here is shorter than the time between two looks, so the next look is the one at its end.
    """
    looks = itertools.count()

    def look() -> dict[str, float]:
        number, is_end = divmod(next(looks), 2)
        if not is_end:
            action(number)
        return {}

    server.counters = look


def test_a_point_that_stalled_once_is_measured_again(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY
    before: list[int] = []

    def action(number: int) -> None:
        before.append(len(sse_server.requests))
        if number == 0:
            sse_server.pause(PAUSE_S)

    at_windows(sse_server, action)
    found = measure(sse_server, no_interrupt)
    assert kinds(found.point.discarded) == [FlagKind.STALLED]
    assert found.point.discarded[0].text.startswith("no stream got anything for 0.")
    assert kinds(found.point.flags) == []
    # Repeated, not averaged: all of it is from the second time.
    assert stalled(found.requests, found.window) is None
    assert found.window[1] - found.window[0] == pytest.approx(WORKLOAD.min_window_s)
    assert len(found.requests) <= len(sse_server.requests) - before[0] + 4


def test_one_that_always_stalls_is_suspect(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY
    at_windows(sse_server, lambda number: sse_server.pause(PAUSE_S))
    found = measure(sse_server, no_interrupt)
    assert kinds(found.point.discarded) == [FlagKind.STALLED] * 2
    assert kinds(found.point.flags) == [FlagKind.STALLED]
    assert found.point.is_suspect
    assert found.broken_off is None
    assert found.point.failed == 0


def test_a_repeat_can_be_interrupted(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: STEADY
    windows: list[int] = []

    def action(number: int) -> None:
        windows.append(number)
        sse_server.pause(PAUSE_S)
        if number == 1:
            no_interrupt.request(Interruption.USER)

    at_windows(sse_server, action)
    assert LoadBench("m", WORKLOAD).measure(sse_server.url, 4, None, no_interrupt) is None
    assert windows == [0, 1]


@pytest.mark.parametrize("drips", [False, True])
def test_a_server_silent_to_the_end_and_beyond_has_failed(
    sse_server: SseServer, no_interrupt: Interrupt, drips: bool
) -> None:
    """Also one that only keeps the connection alive. The window alone would show a low rate."""
    hanging: list[int] = []
    sse_server.answer = lambda number: Script(hang_after=1, drips=drips) if hanging else STEADY
    at_windows(sse_server, hanging.append)
    found = measure(sse_server, no_interrupt, idle_s=1.2)
    assert found.broken_off == "the server sent nothing for 1.2 s"
    assert is_silence(found.broken_off)
    assert found.point.failed == 4
    assert kinds(found.point.discarded) == []  # such a point is not measured again


def test_a_server_of_which_some_streams_hang(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    windows: list[int] = []
    hung: list[int] = []

    def answer(number: int) -> Script:
        if windows and len(hung) < 2:
            hung.append(number)
            return Script(hang_after=1)
        return STEADY

    sse_server.answer = answer
    at_windows(sse_server, windows.append)
    found = measure(sse_server, no_interrupt, idle_s=1.2)
    assert found.broken_off is None
    assert found.point.errors == {"the server sent nothing for 1.2 s": 2}
    assert found.point.window_s == pytest.approx(WORKLOAD.min_window_s)
    assert found.point.done > 6, "the other streams went on"


def test_a_server_of_which_some_streams_always_fail(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    """They are never warm, and the others need not wait for them."""

    def answer(number: int) -> Script:
        is_bad = len(sse_server.requests) == number and number % 2 == 1
        return Script(usage=False) if is_bad else STEADY

    sse_server.answer = answer
    found = measure(sse_server, no_interrupt, workload=replace(WORKLOAD, min_window_s=0.2, max_window_s=0.2))
    assert found.broken_off is None
    assert found.point.failed > 0.01 * (found.point.done + found.point.failed)


def test_a_truncating_server(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(done=False)
    found = measure(sse_server, no_interrupt)
    assert found.broken_off == "the stream ended before [DONE]"


def test_a_slow_server_is_measured_by_its_tokens(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    sse_server.answer = lambda number: Script(ttft_s=0.1, tpot_s=0.15)
    found = measure(sse_server, no_interrupt, workload=replace(WORKLOAD, min_window_s=0.6, max_window_s=0.6))
    assert found.broken_off is None
    assert kinds(found.point.flags) == []
    assert found.point.out_tok_s == pytest.approx(4 / 0.15, rel=0.25)


def test_a_server_that_wakes_up_slowly(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    """The first answers of each stream take 20 times as long; the window has none of that."""
    sse_server.answer = lambda number: replace(STEADY, ttft_s=0.4) if number < 4 else STEADY
    found = measure(sse_server, no_interrupt)
    assert kinds(found.point.discarded) == kinds(found.point.flags) == []
    assert found.point.ttft_s is not None
    assert found.point.ttft_s.p50 < 0.2


def test_a_window_with_a_change_of_speed_is_moved_on(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    begun_s: list[float] = []
    middle_s = WORKLOAD.min_window_s / 2
    sse_server.slowness = lambda: 2.0 if begun_s and time.monotonic() > begun_s[0] + middle_s else 1.0
    sse_server.answer = lambda number: STEADY
    at_windows(sse_server, lambda number: begun_s.append(time.monotonic()))
    found = measure(sse_server, no_interrupt)
    (why,) = drifts(found.point.discarded)
    assert why.startswith("tokens per second fell by")
    assert found.window[0] > WORKLOAD.min_window_s
    assert found.requests[0].sent_s < 0.1  # one load without a break: what came before is warm-up
    before, after = (4 * 8 / (0.01 + 7 * tpot_s) for tpot_s in (0.004, 0.008))
    assert found.point.out_tok_s < (before + after) / 2


def test_one_that_never_gets_steady_is_suspect(sse_server: SseServer, no_interrupt: Interrupt) -> None:
    begin = time.perf_counter()
    sse_server.slowness = lambda: 1.6 ** (time.perf_counter() - begin)
    sse_server.answer = lambda number: STEADY
    found = measure(sse_server, no_interrupt)
    assert len(drifts(found.point.discarded)) == len(drifts(found.point.flags)) == 1


def test_a_window_goes_on_until_enough_requests_are_over(
    sse_server: SseServer, no_interrupt: Interrupt
) -> None:
    sse_server.answer = lambda number: STEADY
    short = replace(WORKLOAD, min_window_s=0.3, max_window_s=20.0)
    found = measure(sse_server, no_interrupt, workload=short, wanted_requests={4: 80, 1: 9999})
    assert 80 <= found.point.done < 160


# Limits


def test_a_warm_up_that_does_not_end(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point, "_MAX_WARM_UP_S", 0.5)
    sse_server.answer = lambda number: Script(hang_after=1, drips=True)
    found = measure(sse_server, no_interrupt)
    assert found.broken_off is not None
    assert found.broken_off.startswith("the warm-up was not over after ")
    assert found.point.errors == {found.broken_off: 4}


@pytest.mark.parametrize("module", [point, load])
def test_nothing_lasts_longer_than_the_limit_of_a_point(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch, module: object
) -> None:
    """It is kept by the watch of the streams, and from outside in case that is stuck itself."""
    monkeypatch.setattr(module, "point_limit_s", lambda *_: 0.5 + point._END_S * (module is point))
    monkeypatch.setattr(load, "_PROMPTS_S", 0.0)
    sse_server.answer = lambda number: Script(hang_after=1, drips=True)
    if module is load:
        sse_server.answer = lambda number: Script(hang_after=0)
    found = measure(sse_server, no_interrupt)
    assert found.broken_off is not None
    assert found.broken_off.startswith("the point was not over after ")


# The client


def test_a_point_the_client_was_too_slow_for_is_measured_again_until_that_proves_useless(
    sse_server: SseServer, no_interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = Flag(kind=FlagKind.CLIENT_BOUND, text="the client was slow")
    seen: list[ClientLoad] = []

    def client_flag(load: ClientLoad, tpot_s: float | None) -> Flag | None:
        seen.append(load)
        return flag

    monkeypatch.setattr(measured, "client_flag", client_flag)
    sse_server.answer = lambda number: STEADY
    bench = LoadBench("m", replace(WORKLOAD, min_window_s=0.2, max_window_s=0.2), processes=1)
    points = [bench.measure(sse_server.url, 4, None, no_interrupt) for _ in range(2)]
    assert [kinds(found.point.discarded) for found in points if found] == [[flag.kind], []]
    assert [kinds(found.point.flags) for found in points if found] == [[flag.kind], [flag.kind]]
    assert len(seen) == 3
