"""What a search did in one simulated run, and how good the choice was that it would have made at any time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.decide.hypervolume import Corner, hypervolume
from autotune.domain.space import Value
from search_sim.reference import Reference
from search_sim.scenario import Scenario
from search_sim.world import true_values

HOUR = 3600.0
TARGETS = (0.8, 0.9)
"""Shares of the best whose times are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One trial: `values` are those measured, None where there are none; a repeat has the same `settings`."""

    settings: Mapping[str, Value]
    ended_s: float
    took_s: float
    failed: bool
    values: tuple[float, ...] | None
    origin: str = ""


@dataclass
class History:
    """All trials of a run, in the order of their ends."""

    scenario: Scenario
    budget_s: float
    trials: list[Done] = field(default_factory=list)
    refused: Mapping[str, int] = field(default_factory=dict)

    def crash_share(self, until_s: float) -> float:
        """Share of the time up to `until_s` in trials that failed."""
        end_s = min(until_s, self.budget_s)
        lost = sum(
            max(0.0, min(each.ended_s, end_s) - (each.ended_s - each.took_s))
            for each in self.trials
            if each.failed
        )
        return lost / end_s

    def standings(self) -> list["Standing"]:
        """What would be chosen after each trial that was measured, by what was measured until then."""
        known: dict[frozenset[tuple[str, Value]], _Known] = {}
        found: list[Standing] = []
        for each in self.trials:
            if each.values is None:
                continue
            key = frozenset(each.settings.items())
            if key not in known:
                known[key] = _Known(true_values(self.scenario, each.settings))
            known[key].logs.append([math.log(value) for value in each.values])
            among = list(known.values())
            best = max(among, key=lambda one: sum(one.mean))
            front = [one.truth for one in among if not any(_beats(other, one) for other in among)]
            found.append(Standing(at_s=each.ended_s, chosen=best.truth, front=tuple(front)))
        return found


@dataclass
class _Known:
    """A configuration: what it is in truth, and the logarithms of each measurement."""

    truth: tuple[float, ...]
    logs: list[list[float]] = field(default_factory=list)

    @property
    def mean(self) -> list[float]:
        return [sum(column) / len(self.logs) for column in zip(*self.logs, strict=True)]


def _beats(one: _Known, other: _Known) -> bool:
    pairs = list(zip(one.mean, other.mean, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """In true values: the `chosen` configuration and those that look best in some way, from `at_s` on."""

    at_s: float
    chosen: tuple[float, ...]
    front: tuple[Corner, ...]

    def quality(self, reference: Reference) -> float:
        """Geometric mean of the objectives, as a share of the best."""
        return math.exp(sum(map(math.log, self.chosen)) / len(self.chosen)) / reference.score

    def volume(self, reference: Reference) -> float:
        """Hypervolume as a share of that of the reference's front, from the origin."""
        return hypervolume(self.front) / reference.volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of one run. Times are None where the target was not reached within the budget."""

    quality: Mapping[str, float]
    volume: float
    crash_share: float
    reached_s: Mapping[str, float | None]
    trials: int
    failures: int


def scores(history: History, reference: Reference, checkpoints_s: Sequence[float]) -> Scores:
    """The numbers of one run; hypervolume and crashes are those at 2 h, or the end if that is sooner."""
    standings = history.standings()
    two_hours = min(2 * HOUR, history.budget_s)
    last = _at(standings, two_hours)
    reached = {}
    for target in TARGETS:
        times = [s.at_s for s in standings if s.quality(reference) >= target]
        reached[f"{target:.0%}"] = times[0] if times else None
    within = [each for each in history.trials if each.ended_s <= two_hours]
    return Scores(
        quality={
            duration(at_s): (chosen.quality(reference) if (chosen := _at(standings, at_s)) else 0.0)
            for at_s in checkpoints_s
            if at_s <= history.budget_s
        },
        volume=last.volume(reference) if last else 0.0,
        crash_share=history.crash_share(two_hours),
        reached_s=reached,
        trials=len(within),
        failures=sum(each.failed for each in within),
    )


def duration(seconds: float) -> str:
    """`30min`, `1h`."""
    return f"{seconds / 60:.0f}min" if seconds < HOUR else f"{seconds / HOUR:.0f}h"


def _at(standings: Sequence[Standing], at_s: float) -> Standing | None:
    until = [standing for standing in standings if standing.at_s <= at_s]
    return until[-1] if until else None
