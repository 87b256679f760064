"""How two sides of a comparison differ at each stream count, from all the runs there are of each."""

from collections.abc import Sequence
from statistics import geometric_mean

from autotune.decide.blocks import block_model
from autotune.decide.differences import difference
from autotune.decide.ladder import launches_by_configuration
from autotune.decide.likeness import unlikeness
from autotune.decide.noise import Noise, Read, decodes_speculatively, noise_of, pooled, prior_noise
from autotune.domain.comparison import Comparison, Row, Side
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord

DEFAULT_METRICS = ("out_tok_s", "ttft_p50", "tpot_p50", "e2e_p50")
_PRIOR_HOLDS = {"out_tok_s", "tpot_p50", "e2e_p50"}
"""What is usual of throughput is usual of these too, which a closed loop ties to it; the rest varies more."""


def runs_of(records: Sequence[TrialRecord], chosen: TrialRecord) -> tuple[tuple[Point, ...], ...]:
    """The ladders of the configuration of trial `chosen`: of all its trials that were measured."""
    launches = launches_by_configuration(records).get(chosen.configuration.digest, [])
    return tuple(record.points for record in launches)


def side_of(name: str, study: str, info: StudyInfo, records: Sequence[TrialRecord], of: TrialRecord) -> Side:
    """The configuration of trial `of`, with all its runs and the repeats of its study.

    `name` is how the user finds it again, `study` what tells its study from others.
    """
    environment = info.environment
    return Side(
        name=name,
        model=info.model,
        workload=info.workload,
        version=environment.vllm.version,
        machine=environment.machine.hostname,
        gpus=tuple(gpu.name for gpu in environment.machine.gpus),
        runs=runs_of(records, of),
        configuration=of.configuration,
        study=study,
        records=tuple(records),
        speculative=decodes_speculatively(of),
    )


def compare(first: Side, second: Side, metrics: Sequence[str] = DEFAULT_METRICS) -> Comparison:
    """How `second` differs from `first`, for each stream count of either and each metric.

    An interval rests on the best there is: blocks of the finals that have both, several runs of each, the
    noise that repeats in their studies have shown, and last what is usual.
    """
    counts = sorted({point.streams for run in (*first.runs, *second.runs) for point in run})
    rows = tuple(_row(first, second, metric, streams) for streams in counts for metric in metrics)
    return Comparison(first=first, second=second, rows=rows, warnings=unlikeness(first, second))


def _row(first: Side, second: Side, metric: str, streams: int) -> Row:
    def read(record: TrialRecord) -> float | None:
        return _value(record.points, metric, streams)

    a, b = ([v for run in side.runs if (v := _value(run, metric, streams))] for side in (first, second))
    found = None
    if a and b:
        found = _within_blocks(first, second, read) or difference(
            a, b, _noise(first, second, metric, streams, read)
        )
    return Row(
        streams=streams,
        metric=metric,
        first=geometric_mean(a) if a else None,
        second=geometric_mean(b) if b else None,
        difference=found,
    )


def _value(points: Sequence[Point], metric: str, streams: int) -> float | None:
    """A metric of a measured ladder; None where it has none that can be put in a ratio."""
    value = next((METRICS[metric].read(point) for point in points if point.streams == streams), None)
    return value if value is not None and value > 0 else None


def _within_blocks(first: Side, second: Side, read: Read) -> Difference | None:
    """By the blocks of their study's finals; None where fewer than 2 have both."""
    if first.configuration is None or second.configuration is None or first.study != second.study:
        return None
    return block_model(first.records, read).difference(
        first.configuration.digest, second.configuration.digest
    )


def _noise(first: Side, second: Side, metric: str, streams: int, read: Read) -> tuple[Noise, Basis] | None:
    """What repeats in their studies have shown, else what is usual."""
    studies = {side.study: side.records for side in (first, second)}
    seen = pooled(*(noise_of(records, read) for records in studies.values()))
    if seen is not None and seen.sd_log > 0:
        return seen, Basis.NOISE
    if metric in _PRIOR_HOLDS:
        return prior_noise(streams, speculative=first.speculative or second.speculative), Basis.PRIOR
    return None
