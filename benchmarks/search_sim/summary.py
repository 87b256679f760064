"""What all runs together say: means with intervals, and whether the goals are met."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_sim.history import TARGETS, Scores
from search_sim.reference import Reference
from search_sim.scenario import Scenario

OURS, DEFAULT_ONLY, RANDOM = "autotune", "autotune, default start only", "random"
RIVALS = (RANDOM, "Optuna, crash = FAIL", "TPE, crash = 0 tok/s", "one setting at a time")

MOST_CRASHES = 0.10
"""Of the time, on average over the scenarios in which random search loses `MANY_CRASHES` of it or more."""
MANY_CRASHES = 0.50

EQUAL = 0.02
"""Two searches that are both within this of the best are equal: it is less than the noise of one launch."""

_RESAMPLES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds with the 95 % interval of its bootstrap."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The same values always give the same interval."""
        sample = np.array(values)
        drawn = np.random.default_rng(0).integers(0, len(sample), (_RESAMPLES, len(sample)))
        low, high = np.quantile(sample[drawn].mean(axis=1), (0.025, 0.975))
        return cls(mean=float(sample.mean()), low=float(low), high=float(high))

    def beats(self, other: "Estimate") -> bool:
        """Whether it is better on average, or both are as good as the best."""
        return self.mean > other.mean or self.mean >= 1 - EQUAL

    def clearly_beats(self, other: "Estimate") -> bool:
        """Whether it is better and the intervals do not overlap."""
        return self.low > other.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A method in a scenario, over all seeds. A median time is None where most runs never came there."""

    quality: Mapping[str, Estimate]
    volume: Estimate
    crash_share: Estimate
    reached: Mapping[str, float]
    """By target, the share of runs that reached it."""
    reached_s: Mapping[str, float | None]
    trials: float
    failures: float


def cell(runs: Sequence[Scores]) -> Cell:
    """The runs of one method in one scenario."""
    targets = [f"{target:.0%}" for target in TARGETS]
    return Cell(
        quality={at: Estimate.of([run.quality[at] for run in runs]) for at in runs[0].quality},
        volume=Estimate.of([run.volume for run in runs]),
        crash_share=Estimate.of([run.crash_share for run in runs]),
        reached={t: sum(run.reached_s[t] is not None for run in runs) / len(runs) for t in targets},
        reached_s={t: _median([run.reached_s[t] for run in runs]) for t in targets},
        trials=sum(run.trials for run in runs) / len(runs),
        failures=sum(run.failures for run in runs) / len(runs),
    )


def _median(times_s: Sequence[float | None]) -> float | None:
    known = sorted(time_s if time_s is not None else float("inf") for time_s in times_s)
    middle = known[(len(known) - 1) // 2]
    return middle if middle != float("inf") else None


Table = Mapping[str, Mapping[str, Cell]]
"""Cells by scenario and method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`figure` is what came out, `wanted` what was asked for; `missed` names the scenarios that miss it."""

    name: str
    met: bool
    figure: str
    wanted: str
    missed: tuple[str, ...] = ()


def goals(table: Table) -> tuple[Goal, ...]:
    """All of them over the scenarios of `table`; one that cannot be judged without some method is missed."""
    return (
        _crashes(table),
        _sooner_than_random(table),
        _volume_above(table, OURS, f"hypervolume at 2 h above every rival ({OURS})"),
        _volume_clearly_above(table),
        _volume_above(
            table, DEFAULT_ONLY, "hypervolume at 2 h above every rival with the default start only"
        ),
    )


def _crashes(table: Table) -> Goal:
    having = _having(table, (OURS, RANDOM))
    hard = [name for name in having if table[name][RANDOM].crash_share.mean >= MANY_CRASHES]
    lost = {name: table[name][OURS].crash_share.mean for name in hard}
    mean = sum(lost.values()) / len(lost) if lost else float("nan")
    return Goal(
        name=f"time lost in crashes, where random search loses {MANY_CRASHES:.0%} or more",
        met=mean <= MOST_CRASHES,
        figure=f"{mean:.1%} on average of {len(hard)} scenarios" if hard else "no such scenario was run",
        wanted=f"at most {MOST_CRASHES:.0%}",
        missed=tuple(name for name, share in lost.items() if share > MOST_CRASHES),
    )


def _sooner_than_random(table: Table) -> Goal:
    having = _having(table, (OURS, RANDOM))
    missed = [
        name
        for name in having
        if not table[name][OURS].quality["1h"].beats(table[name][RANDOM].quality["4h"])
    ]
    return _in_every("quality after 1 h better than that of random search after 4 h", having, missed)


def _volume_above(table: Table, method: str, name: str) -> Goal:
    having = _having(table, (method, *RIVALS))
    missed = [
        scenario
        for scenario in having
        if not all(table[scenario][method].volume.beats(table[scenario][rival].volume) for rival in RIVALS)
    ]
    return _in_every(name, having, missed)


def _volume_clearly_above(table: Table) -> Goal:
    having = _having(table, (OURS, *RIVALS))
    missed = [
        scenario
        for scenario in having
        if not all(
            table[scenario][OURS].volume.clearly_beats(table[scenario][rival].volume) for rival in RIVALS
        )
    ]
    clear = len(having) - len(missed)
    return Goal(
        name="hypervolume at 2 h above every rival with intervals that do not overlap",
        met=2 * clear > len(having),
        figure=f"{clear} of {len(having)} scenarios",
        wanted="most scenarios",
        missed=tuple(missed),
    )


def _in_every(name: str, having: Sequence[str], missed: Sequence[str]) -> Goal:
    return Goal(
        name=name,
        met=bool(having) and not missed,
        figure=f"{len(having) - len(missed)} of {len(having)} scenarios",
        wanted="every scenario",
        missed=tuple(missed),
    )


def _having(table: Table, methods: Iterable[str]) -> list[str]:
    wanted = set(methods)
    return [name for name, cells in table.items() if wanted <= cells.keys()]


def markdown(scenarios: Sequence[Scenario], references: Mapping[str, Reference], table: Table) -> str:
    """Everything as tables for a reader."""
    lines: list[str] = []
    for scenario in scenarios:
        cells = table[scenario.name]
        lines += [
            f"**{scenario.name}**: {scenario.about}. Of uniformly random configurations "
            f"{references[scenario.name].crash_share:.0%} fail. "
            f"Objectives: {', '.join(scenario.objectives)}.",
            "",
            "| search | 30 min | 1 h | 2 h | 4 h | hypervolume at 2 h | crashes | 80 % | 90 % |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_row(method, each) for method, each in cells.items()),
            "",
        ]
    return "\n".join(lines)


def _row(method: str, each: Cell) -> str:
    qualities = [_shown(each.quality[at]) if at in each.quality else "" for at in ("30min", "1h", "2h", "4h")]
    times = [_minutes(each.reached_s[target]) for target in each.reached_s]
    crashes = f"{each.crash_share.mean:.0%}"
    return "| " + " | ".join([method, *qualities, _shown(each.volume), crashes, *times]) + " |"


def _shown(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.0f} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"


def _minutes(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.0f} min"


def goals_table(found: Sequence[Goal]) -> str:
    """The goals, each with its figure."""
    lines = ["| goal | wanted | found | met |", "|---|---|---|---|"]
    for goal in found:
        where = f" (not in {', '.join(goal.missed)})" if goal.missed else ""
        lines.append(
            f"| {goal.name} | {goal.wanted} | {goal.figure}{where} | {'yes' if goal.met else '**no**'} |"
        )
    return "\n".join(lines)
