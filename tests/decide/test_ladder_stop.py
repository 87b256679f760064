"""Ladders given up early: what rules a configuration out, and that the best is hardly ever given up."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import landscape
import pytest
from builders import measured, objectives, point, record

from autotune.decide.ladder_stop import FASTER, SEEN, LadderStop
from autotune.decide.ranking import candidates, pareto
from autotune.decide.space.sampling import draw
from autotune.domain.launch import server_args
from autotune.domain.measurement import Flag, FlagKind
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.trial import Measured, Origin, TrialRecord

STREAMS = (1, 8, 64)
BOTH = objectives("out_tok_s@64", "out_tok_s@1")
# Each is 1, 8, 64 streams; the best is number 7.
KNOWN = [record(n, measured(s1=40 + n, s8=280 + 7 * n, s64=1000 + 20 * n)) for n in range(SEEN)]


def _running(**changes: object) -> TrialRecord:
    return replace(record(SEEN, None), **changes)  # type: ignore[arg-type]


def _why(*rates: float, wanted: Sequence[Objective] = BOTH, **changes: object) -> str | None:
    stop = LadderStop(records=KNOWN, objectives=wanted, limits=(), streams=STREAMS)
    points = [point(streams, rate) for streams, rate in zip(STREAMS, rates, strict=False)]
    return stop.why(_running(**changes), points)


def test_what_is_far_behind_in_all_that_can_still_be_hoped_for_is_given_up() -> None:
    why = _why(20.0, 100.0)
    assert why is not None
    assert "after 8 streams: trial 7" in why
    assert _why(20.0) is None  # two stream counts have to say it
    assert _why(60.0, 100.0) is None  # it is ahead with one stream
    # At 64 streams it may have up to FASTER times what growth from 8 was ever seen: 1000 / 280.
    growth = 1000 / 280
    assert _why(20.0, 1140 / growth / FASTER / 1.1) is None
    assert _why(20.0, 1140 / growth / FASTER / 1.4) is not None


def test_times_are_taken_to_grow_no_shorter() -> None:
    wanted = objectives("ttft_p50@64")
    known = [
        record(n, Measured(points=tuple(point(s, 10, ttft_s=0.1) for s in STREAMS))) for n in range(SEEN)
    ]
    stop = LadderStop(records=known, objectives=wanted, limits=(), streams=STREAMS)
    assert stop.why(_running(), [point(1, 10, ttft_s=0.05), point(8, 10, ttft_s=0.2)]) is None
    assert stop.why(_running(), [point(1, 10, ttft_s=0.2), point(8, 10, ttft_s=0.2)]) is not None


@pytest.mark.parametrize("origin", [o for o in Origin if o not in (Origin.SAMPLED, Origin.LOCAL)])
def test_what_is_measured_for_another_reason_is_measured_to_its_end(origin: Origin) -> None:
    assert _why(20.0, 100.0, origin=origin) is None
    assert _why(20.0, 100.0, origin=Origin.LOCAL) is not None


def test_what_cannot_be_judged_is_measured() -> None:
    assert _why(20.0, 100.0, wanted=objectives("goodput_req_s@64")) is None
    speculative = ("vllm", "serve", "--speculative-config", "{}")
    assert _why(1.0, 8.0, argv=speculative) is not None
    assert _why(26.0, 100.0) is not None
    assert _why(26.0, 100.0, argv=speculative) is None  # it varies by 10 %
    few = LadderStop(records=KNOWN[1:], objectives=BOTH, limits=(), streams=STREAMS)
    assert few.why(_running(), [point(1, 20.0), point(8, 100.0)]) is None
    doubt = Flag(kind=FlagKind.STALLED, text="silent")
    stop = LadderStop(records=KNOWN, objectives=BOTH, limits=(), streams=STREAMS)
    assert stop.why(_running(), [point(1, 20.0), replace(point(8, 100.0), flags=(doubt,))]) is None


def test_a_rest_that_takes_no_time_is_measured() -> None:
    quick = [
        replace(r, outcome=Measured(points=tuple(replace(p, window_s=1.0) for p in r.points))) for r in KNOWN
    ]
    stop = LadderStop(records=quick, objectives=BOTH, limits=(), streams=STREAMS)
    assert stop.why(_running(), [point(1, 20.0), point(8, 100.0)]) is None


def _night(seed: int, wanted: Sequence[Objective]) -> tuple[list[TrialRecord], set[int]]:
    """Forty configurations at random that work, measured to the end, and the numbers of those given up."""
    ladder = (1, 2, 4, 8, 16, 32, 64)
    space, rng = landscape.space(), Random(seed)  # noqa: S311 - reproducible on purpose
    records: list[TrialRecord] = []
    given_up: set[int] = set()
    while len(records) < 40:
        configuration = draw(space, rng) if records else Configuration()
        server = landscape.MadeServer(values=configuration.values, seed=1000 * seed + len(records))
        if configuration.values and server.failure() is not None:
            continue
        points = tuple(server.point(streams, 0).point for streams in ladder)
        running = replace(
            record(len(records), None, dict(configuration.values)),
            argv=("vllm", "serve", *server_args(space, configuration).flags),
        )
        kept = [r for r in records if r.number not in given_up]
        stop = LadderStop(records=kept, objectives=wanted, limits=(), streams=ladder)
        if any(stop.why(running, points[:n]) for n in range(1, len(points))):
            given_up.add(running.number)
        records.append(replace(running, outcome=Measured(points=points)))
    return records, given_up


@pytest.mark.parametrize(("wanted", "share"), [(objectives("out_tok_s@64"), 0.1), (BOTH, 0.02)])
def test_the_best_is_hardly_ever_given_up(wanted: Sequence[Objective], share: float) -> None:
    lost = best = given_up_in_all = measured_in_all = 0
    for seed in range(8):
        records, given_up = _night(seed, wanted)
        front = {c.record.number for c in pareto(candidates(records, wanted), wanted)}
        lost += len(front & given_up)
        best += len(front)
        given_up_in_all += len(given_up)
        measured_in_all += len(records)
    assert lost <= 0.01 * best
    assert given_up_in_all >= share * measured_in_all  # else it would be of no use
