"""Which points are measured again, and when the load is spread over more processes."""

from dataclasses import replace

import pytest
from builders import measured_point

from autotune.bench.repeats import Repeats
from autotune.domain.measurement import ClientLoad, Flag, FlagKind, MeasuredPoint

STALL = Flag(kind=FlagKind.STALLED, text="it stalled")
BOUND = Flag(kind=FlagKind.CLIENT_BOUND, text="the client was slow")
NOTE = Flag(kind=FlagKind.PREEMPTED, text="the cache was full")


def point(*flags: Flag, streams: int = 64, cpu_share: float = 0.1) -> MeasuredPoint:
    load = ClientLoad(cpu_share=cpu_share, loop_lag_p99_s=0.0, run_queue_s=None, involuntary_switches=0)
    found = measured_point(streams, 100.0)
    return replace(found, point=replace(found.point, flags=flags, client=load))


def test_a_good_point_is_not_repeated() -> None:
    assert Repeats(None, 8).reason(point(), []) is None
    assert Repeats(None, 8).reason(point(NOTE), []) is None


def test_a_stall_is_repeated_twice() -> None:
    repeats = Repeats(None, 8)
    assert repeats.reason(point(STALL, NOTE), []) is STALL
    assert repeats.reason(point(STALL), [STALL]) is STALL
    assert repeats.reason(point(STALL), [STALL, STALL]) is None
    assert repeats.reason(point(STALL), []) is STALL  # of the next point


def test_a_server_that_always_stalls_is_not_repeated_at_every_stream_count() -> None:
    repeats = Repeats(None, 8)
    for _ in range(2):
        assert repeats.reason(point(STALL), []) is STALL
        assert repeats.reason(point(STALL), [STALL]) is STALL
        assert repeats.reason(point(STALL), [STALL, STALL]) is None
    assert repeats.reason(point(STALL), []) is None
    repeats.begin_server()
    assert repeats.reason(point(STALL), []) is STALL


def test_a_point_that_was_broken_off_is_not_repeated() -> None:
    broken = replace(point(STALL), broken_off="the server sent nothing for 60 s")
    assert Repeats(None, 8).reason(broken, []) is None


def test_a_slow_client_is_repeated_once_and_never_again_when_that_does_not_help() -> None:
    repeats = Repeats(None, 8)
    assert repeats.reason(point(BOUND), []) is BOUND
    assert repeats.reason(point(), [BOUND]) is None  # it helped
    assert repeats.reason(point(BOUND), []) is BOUND
    assert repeats.reason(point(BOUND), [BOUND]) is None
    assert repeats.reason(point(BOUND), []) is None


def test_a_stall_is_repeated_on_a_slow_machine_too() -> None:
    repeats = Repeats(None, 2)
    assert repeats.reason(point(BOUND), []) is BOUND
    assert repeats.reason(point(BOUND), [BOUND]) is None
    assert repeats.reason(point(BOUND, STALL), []) is STALL
    assert repeats.reason(point(BOUND, STALL), [STALL, STALL]) is None


def test_a_client_at_its_own_limit_gets_more_processes_and_keeps_them() -> None:
    repeats = Repeats(None, 16)
    for processes in (1, 2, 4):
        assert repeats.processes(64) == processes
        assert repeats.reason(point(BOUND, cpu_share=0.9), [BOUND] * processes) is BOUND
    assert repeats.processes(64) == repeats.processes(256) == 8  # half of the processors: no more
    assert repeats.processes(32) == 1
    assert repeats.reason(point(BOUND, cpu_share=0.9), [BOUND]) is None


@pytest.mark.parametrize(
    ("fixed", "cpus", "streams", "cpu_share"), [(None, 3, 64, 0.9), (2, 16, 64, 0.9), (None, 16, 64, 0.4)]
)
def test_more_processes_are_not_taken_where_they_cannot_help(
    fixed: int | None, cpus: int, streams: int, cpu_share: float
) -> None:
    repeats = Repeats(fixed, cpus)
    repeats.reason(point(BOUND, streams=streams, cpu_share=cpu_share), [])
    assert repeats.processes(streams) == (fixed or 1)


def test_there_are_never_more_processes_than_streams() -> None:
    repeats = Repeats(None, 16)
    assert repeats.reason(point(BOUND, streams=1, cpu_share=0.9), []) is BOUND  # once, as it may pass
    assert repeats.processes(1) == 1
    assert Repeats(8, 16).processes(4) == 4
