"""How two sides of a comparison differ at each stream count, from all the runs there are of each."""

import re
from collections.abc import Sequence
from math import sqrt
from statistics import geometric_mean

from autotune.decide.blocks import block_model
from autotune.decide.differences import difference
from autotune.decide.likeness import unlikeness
from autotune.decide.noise import Noise, Read, noise_of, prior_noise
from autotune.domain.comparison import Comparison, Row, Side
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Point
from autotune.domain.metric import METRICS
from autotune.domain.trial import Measured, TrialRecord

DEFAULT_METRICS = ("out_tok_s", "ttft_p50", "tpot_p50", "e2e_p50")
_PRIOR_HOLDS = {"out_tok_s", "tpot_p50", "e2e_p50"}
"""What is usual of throughput is usual of these too, which a closed loop ties to it; the rest varies more."""
_SPECULATIVE_FLAGS = {"--speculative-config", "--speculative_config", "-sc"}


def runs_of(records: Sequence[TrialRecord], chosen: TrialRecord) -> tuple[tuple[Point, ...], ...]:
    """The ladders of the configuration of trial `chosen`: of all its trials that were measured."""
    return tuple(
        record.points
        for record in records
        if record.configuration.digest == chosen.configuration.digest and isinstance(record.outcome, Measured)
    )


def decodes_speculatively(record: TrialRecord) -> bool:
    """Whether a trial's server was started with speculative decoding."""
    return any(re.split(r"[=.]", word)[0] in _SPECULATIVE_FLAGS for word in record.argv)


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
    seen = [noise for records in studies.values() if (noise := noise_of(records, read)) is not None]
    df = sum(noise.df for noise in seen)
    squares = sum(noise.df * noise.sd_log**2 for noise in seen)
    if squares > 0:
        return Noise(sd_log=sqrt(squares / df), df=df), Basis.NOISE
    if metric in _PRIOR_HOLDS:
        return prior_noise(streams, speculative=first.speculative or second.speculative), Basis.PRIOR
    return None
