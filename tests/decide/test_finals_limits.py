"""Finals under limits: who gets into them, and who drops out of them."""

from dataclasses import replace

from builders import objectives, point, record

from autotune.decide.finals import Block, Finals
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.space import Configuration
from autotune.domain.study import Limits
from autotune.domain.trial import Measured, Origin, TrialRecord

FINALS = Finals(
    objectives=objectives("out_tok_s@8"),
    limits=Limits(),
    seed=0,
    metric_limits=parse_metric_limits(["ttft_p50@8<=2s"]),
)


def _launch(
    number: int, configuration: int, rate: float, ttft_s: float, block: int | None = None
) -> TrialRecord:
    made = record(
        number,
        Measured(points=(point(8, rate, ttft_s=ttft_s),)),
        {"a": configuration} if configuration else {},
    )
    return replace(made, origin=made.origin if block is None else Origin.FINAL, block=block)


def _search(*launches: tuple[float, float]) -> list[TrialRecord]:
    """One launch each of the baseline and of configurations 1, 2, ..."""
    return [_launch(n, n, rate, ttft_s) for n, (rate, ttft_s) in enumerate(launches)]


def _names(configurations: tuple[Configuration, ...] | list[Configuration]) -> list[object]:
    return [configuration.values.get("a", 0) for configuration in configurations]


def test_what_breaks_a_limit_is_no_finalist() -> None:
    records = _search((100.0, 1.0), (300.0, 2.6), (200.0, 2.0), (150.0, 1.0))
    assert _names(FINALS.eligible(records)) == [2, 3]
    assert _names(replace(FINALS, metric_limits=()).eligible(records)) == [1, 2, 3]


def test_the_defaults_are_what_to_beat_as_long_as_they_keep_the_limits() -> None:
    others = ((80.0, 1.0), (79.0, 1.0), (40.0, 1.0))
    assert FINALS.eligible(_search((100.0, 1.0), *others)) == []
    # Of those that are then left, 40 is slower than the best beyond noise.
    assert _names(FINALS.eligible(_search((100.0, 2.6), *others))) == [1, 2]
    assert FINALS.eligible(_search((100.0, 2.6), (90.0, 2.6))) == []


def _after_blocks(*ttft_s: float) -> Block | None:
    """What follows when configuration 1, the faster one, had these times in so many blocks of finals."""
    records = _search((100.0, 1.0), (130.0, 1.0), (110.0, 1.0))
    block = FINALS.first_block(records, left_s=1e6)
    for seconds in ttft_s:
        assert block is not None
        for configuration, rate in ((0, 100.0), (1, 130.0 + len(records)), (2, 129.0 - len(records))):
            time_s = seconds if configuration == 1 else 1.0
            records.append(_launch(len(records), configuration, rate, time_s, block.number))
        block = FINALS.next_block(block, records, left_s=1e6)
    return block


def test_a_finalist_that_breaks_a_limit_in_the_mean_drops_out_at_a_look_and_not_before() -> None:
    one = _after_blocks(3.0)
    assert one is not None
    assert _names(one.finalists) == [1, 2]
    at_look = _after_blocks(3.0, 3.0, 3.0)
    assert at_look is None or _names(at_look.finalists) == [2]


def test_finals_end_when_no_finalist_keeps_the_limits() -> None:
    records = _search((100.0, 1.0), (130.0, 1.0))
    block = FINALS.first_block(records, left_s=1e6)
    for _ in range(3):
        assert block is not None
        for configuration, rate in ((0, 100.0), (1, 100.0 + len(records))):
            records.append(_launch(len(records), configuration, rate, 3.0, block.number))
        block = FINALS.next_block(block, records, left_s=1e6)
    assert block is None
    assert FINALS.in_question(records) == []
