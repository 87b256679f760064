"""How limits are said: what keeps and what breaks them, and why nothing is chosen where nothing does."""

from collections.abc import Mapping, Sequence

from autotune.decide.limits import Held
from autotune.decide.ranking import candidates, failed_by_itself, nearest
from autotune.decide.verdict import Verdict
from autotune.domain.metric_limit import MetricLimit
from autotune.domain.objective import Objective
from autotune.domain.trial import Measured, TrialRecord
from autotune.report import words


def limit_sentences(verdict: Verdict) -> list[str]:
    """That what to deploy keeps the limits; of the defaults, where they are no choice, which they break."""
    if not verdict.held:
        return []
    said = [f"Trial {verdict.chosen.number} {standings(verdict.held)}."]
    if verdict.baseline is None or verdict.keeps_baseline:
        return said
    if verdict.baseline_held is None:
        why = "too little was measured of them to tell whether they keep the limits"
        return [*said, f"vLLM's defaults are no choice: {why}."]
    broken = [each for each in verdict.baseline_held if not each.keeps]
    if broken:
        said.append(f"vLLM's defaults are no choice: trial {verdict.baseline.number} {standings(broken)}.")
    return said


def standings(held: Sequence[Held]) -> str:
    """`keeps ttft_p95@4<=2s: 1.50 s; keeps out_tok_s@1>=50: 61.2 tok/s`."""
    return "; ".join(map(words.limit_held, held))


def nothing_to_deploy(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], limits: Sequence[MetricLimit]
) -> str:
    """Why there is no verdict; where nothing keeps the limits, how near the nearest comes."""
    if not any(isinstance(record.outcome, Measured) for record in records):
        return "No configuration has been measured yet."
    known = candidates(records, objectives, limits)
    if not known:
        return "No configuration has been scored yet: too few requests fit the windows."
    failed = failed_by_itself(records)
    closest = nearest([c for c in known if c.record.configuration.digest not in failed] or known)
    if closest is None:
        return "What was measured has also failed by its own fault: it works only sometimes."
    name = f"trial {closest.record.number}, {words.configuration(closest.record.configuration)}"
    which = f"the limit {limits[0]}" if len(limits) == 1 else f"all limits, {' and '.join(map(str, limits))}"
    return (
        f"No configuration keeps {which}, of {len(known)} measured. Nearest comes {name}: it "
        f"{standings(closest.broken)}."
    )


def limits_document(held: Sequence[Held]) -> list[Mapping[str, object]]:
    """For `--json`. `low` and `high` are null where the launches do not tell them."""
    return [
        {
            "limit": str(each.limit),
            "value": each.value,
            "low": each.interval and each.interval.low,
            "high": each.interval and each.interval.high,
            "launches": each.launches,
            "of_finals": each.of_finals,
            "keeps": each.keeps,
        }
        for each in held
    ]


def broken_limits(record: TrialRecord, limits: Sequence[MetricLimit]) -> Mapping[str, float]:
    """The limits that a measured trial breaks by itself, with its values; empty for any other."""
    if not isinstance(record.outcome, Measured):
        return {}
    values = {limit: limit.measured.value(record.points) for limit in limits}
    return {str(limit): v for limit, v in values.items() if v is not None and not limit.keeps(v)}


def keeps_limits(record: TrialRecord, limits: Sequence[MetricLimit]) -> bool | None:
    """Whether a measured trial keeps all limits by itself; None where that is not known."""
    if not isinstance(record.outcome, Measured):
        return None
    violations = [limit.violation(record.points) for limit in limits]
    if any(violation is not None and violation > 0 for violation in violations):
        return False
    return None if None in violations else True
