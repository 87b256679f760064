"""What fits a need: limits in their metrics' directions, context, and the best of what is left."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from builders import objectives

from autotune.decide.what_if import what_if
from autotune.domain.effective import Effective
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.domain.measurement import Point, Quantiles
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.trial import Failed, Measured, Origin, TrialRecord

RATE = Objective.parse("out_tok_s@4")
TTFT = Objective.parse("ttft_p50@4")


def _trial(number: int, rate: float, ttft_s: float, context: int, n: int = 50) -> TrialRecord:
    point = Point(
        streams=4,
        window_s=10,
        out_tok_s=rate,
        prompt_tok_s=1,
        req_s=1,
        ttft_s=Quantiles(n=n, p50=ttft_s),
        tpot_s=None,
        e2e_s=None,
        done=n,
        failed=0,
    )
    return TrialRecord(
        number=number,
        origin=Origin.SAMPLED,
        configuration=Configuration(values={"max_model_len": context, "max_num_seqs": number + 1}),
        argv=("vllm",),
        env={},
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        outcome=Measured(points=(point,)),
    )


def _failed(record: TrialRecord, number: int) -> TrialRecord:
    failure = Failure(
        kind=FailureKind.GPU_OOM, phase=Phase.SERVING, blame=Blame.CONFIGURATION, why="memory", cure=""
    )
    return replace(record, number=number, outcome=Failed(failure=failure))


TRIALS = [
    _trial(0, rate=100, ttft_s=1.0, context=65_536),
    _trial(1, rate=300, ttft_s=3.0, context=65_536),
    _trial(2, rate=400, ttft_s=0.5, context=8_192),
    _trial(3, rate=200, ttft_s=2.0, context=131_072),
]


def _numbers(records: list[TrialRecord], limits: list[MetricLimit], context: int | None = None) -> list[int]:
    return [each.record.number for each in what_if(records, limits, [RATE], context).fitting]


def test_the_fitting_come_best_first_and_the_limit_itself_fits() -> None:
    found = what_if(TRIALS, [MetricLimit(measured=TTFT, bound=2.0)], [RATE], 65_536)
    assert [each.record.number for each in found.fitting] == [3, 0]
    assert found.best is not None
    assert (found.best.record.number, found.best.values) == (3, (200.0,))
    assert [held.value for held in found.best.held] == [2.0]
    assert found.broken_by == {str(TTFT): 1, "context": 1}


def test_a_limit_on_what_should_be_high_is_a_floor() -> None:
    assert _numbers(TRIALS, [MetricLimit(measured=RATE, bound=300)]) == [2, 1]


def test_without_limits_everything_fits() -> None:
    assert _numbers(TRIALS, []) == [2, 1, 3, 0]


def test_what_was_seen_too_little_of_is_unknown_and_does_not_fit() -> None:
    found = what_if(
        [*TRIALS, _trial(4, 900, 0.1, 65_536, n=3)], [MetricLimit(measured=TTFT, bound=9)], [RATE]
    )
    assert 4 not in [each.record.number for each in found.fitting]
    assert (found.measured, found.unknown) == (5, 1)


def test_launches_of_one_configuration_count_together() -> None:
    again = replace(_trial(7, rate=900, ttft_s=1.0, context=65_536), configuration=TRIALS[0].configuration)
    found = what_if([*TRIALS, again], [], objectives("out_tok_s@4"), 131_072 // 2)
    mean = next(each for each in found.fitting if each.record.number == 0)
    assert mean.values == pytest.approx((300.0,))
    assert mean.launches == 2


def test_what_has_also_failed_is_listed_but_never_the_best() -> None:
    found = what_if([*TRIALS, _failed(TRIALS[2], 8)], [], [RATE])
    assert found.fitting[0].record.number == 2
    assert found.best is not None
    assert found.best.record.number == 1
    assert what_if([TRIALS[2], _failed(TRIALS[2], 8)], [], [RATE]).best is None


def test_the_context_is_what_vllm_took() -> None:
    shorter = replace(TRIALS[0], effective=Effective(facts={"max_model_len": 4096}))
    assert _numbers([shorter], [], 8192) == []
    unknown = replace(TRIALS[0], configuration=Configuration())
    assert _numbers([unknown], [], 1) == []
    assert _numbers([replace(unknown, effective=Effective(facts={"max_model_len": 4096}))], [], 4096) == [0]
