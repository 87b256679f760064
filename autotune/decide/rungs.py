"""Two configurations of a study side by side, at each stream count: what they gave, and how they differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.decide.blocks import BASELINE, block_model
from autotune.decide.ladder import estimate, launches_by_configuration
from autotune.domain.difference import Difference
from autotune.domain.objective import Objective
from autotune.domain.trial import Origin, TrialRecord

COMPARED = ("out_tok_s", "ttft_p50", "tpot_p50")
"""Metrics whose differences are told at each stream count."""
_MEANS = ("out_tok_s", "prompt_tok_s", "e2e_p50")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What a configuration gave at one stream count: geometric means over `launches`."""

    out_tok_s: float
    prompt_tok_s: float
    total_s: float | None
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One stream count. A side that was not measured there is None.

    `differences` are by the name of the metric, the other against the baseline; only blocks of the finals
    give any.
    """

    streams: int
    baseline: Level | None
    other: Level | None
    differences: Mapping[str, Difference]


def rungs(
    records: Sequence[TrialRecord], baseline: TrialRecord | None, other: TrialRecord | None
) -> tuple[Rung, ...]:
    """A rung for each stream count of either; from the blocks they have in common, else from all launches."""
    launches = launches_by_configuration(records)
    sides = [launches.get(of.configuration.digest, []) if of else [] for of in (baseline, other)]
    common = set.intersection(*({r.block for r in side if r.origin is Origin.FINAL} for side in sides))
    if common:
        sides = [[record for record in side if record.block in common] for side in sides]
    counts = sorted({point.streams for side in sides for record in side for point in record.points})
    return tuple(
        Rung(
            streams=streams,
            baseline=_level(sides[0], streams),
            other=_level(sides[1], streams),
            differences=_differences(records, other, streams) if common and other else {},
        )
        for streams in counts
    )


def _differences(
    records: Sequence[TrialRecord], other: TrialRecord, streams: int
) -> Mapping[str, Difference]:
    found: dict[str, Difference] = {}
    for metric in COMPARED:
        model = block_model(records, _reader(Objective(metric=metric, streams=streams)))
        if (difference := model.difference(BASELINE, other.configuration.digest)) is not None:
            found[metric] = difference
    return found


def _reader(objective: Objective) -> Callable[[TrialRecord], float | None]:
    return lambda record: objective.value(record.points)


def _level(launches: Sequence[TrialRecord], streams: int) -> Level | None:
    points = [point for record in launches for point in record.points if point.streams == streams]
    if not points:
        return None
    means = {name: found.value for name in _MEANS if (found := estimate(points, name)) is not None}
    return Level(
        out_tok_s=means.get("out_tok_s", 0.0),
        prompt_tok_s=means.get("prompt_tok_s", 0.0),
        total_s=means.get("e2e_p50"),
        launches=len(points),
    )
