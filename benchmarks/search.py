"""How much a search finds in an hour: autotune's own against others, on a simulated machine and its clock.

Only the machine is simulated (`search_sim`): made-up models on made-up cards, of whose configurations 10 to
93 % fail. The search, the lessons, the gate and Optuna are the real ones. All get the same time, and what
counts is the true speed of the configuration that the noisy measurements speak for.

    .venv/bin/python benchmarks/search.py [--quick] [--json] [--seeds N] [--scenario NAME] [--method NAME]

`--write` also keeps the result in benchmarks/results/search.json and, as tables, in benchmarks/README.md.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from search_sim.development import DEVELOPMENT
from search_sim.hidden import HIDDEN
from search_sim.history import HOUR, History, Scores, scores
from search_sim.ours import run_default_start, run_ours
from search_sim.reference import Reference, reference
from search_sim.rivals import Crash, run_grid, run_random, run_tpe
from search_sim.scenario import Scenario
from search_sim.summary import (
    DEFAULT_ONLY,
    OURS,
    RANDOM,
    RIVALS,
    Table,
    cell,
    goals,
    goals_table,
    markdown,
)

SEEDS = 20
CHECKPOINTS_S = (HOUR / 2, HOUR, 2 * HOUR, 4 * HOUR)
QUICK_SCENARIO, QUICK_SEEDS = "dev-14b-24g", 2

_, FAIL, ZERO, GRID = RIVALS
METHODS: Mapping[str, Callable[[Scenario, int, float], History]] = {
    OURS: run_ours,
    DEFAULT_ONLY: run_default_start,
    RANDOM: run_random,
    FAIL: run_tpe(Crash.FAIL),
    ZERO: run_tpe(Crash.ZERO),
    GRID: run_grid,
}
SHORT = {"ours": OURS, "default": DEFAULT_ONLY, "random": RANDOM, "fail": FAIL, "zero": ZERO, "grid": GRID}
"""Names for the command line."""
README = Path(__file__).with_name("README.md")
RESULTS = Path(__file__).parent / "results" / "search.json"
BEGIN, END = "<!-- search.py --write: begin -->", "<!-- search.py --write: end -->"

ALL = {scenario.name: scenario for scenario in (*DEVELOPMENT, *HIDDEN)}


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one search. The slowest methods come first, so that none is left over at the end."""

    scenario: str
    method: str
    seed: int
    reference: Reference

    @property
    def budget_s(self) -> float:
        """Random search gets twice the time, for the goal that compares 1 h with 4 h of it."""
        return 4 * HOUR if self.method == RANDOM else 2 * HOUR


def main() -> None:
    """Run what is asked for and print it."""
    options = _options()
    chosen = [ALL[name] for name in options.scenario or _default_scenarios(options)]
    methods = [SHORT[name] for name in options.method or SHORT]
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    with multiprocessing.get_context("fork").Pool(options.jobs, _quiet) as pool:
        found = pool.map(reference, chosen)
        references = {scenario.name: each for scenario, each in zip(chosen, found, strict=True)}
        jobs = [
            Job(scenario.name, method, seed, references[scenario.name])
            for method in methods
            for seed in range(seeds)
            for scenario in chosen
        ]
        results: dict[tuple[str, str, int], Scores] = {}
        progress = _Progress(len(jobs))
        for key, result in pool.imap_unordered(_run, jobs, chunksize=1):
            results[key] = result
            progress.show(len(results))
    table = _table(results, chosen, methods, seeds)
    report = json.dumps(_report(chosen, references, table, seeds), indent=1, allow_nan=False)
    judged = _judged(chosen, table)
    verdict = goals_table(goals(judged)) if judged else "The goals are about the hidden scenarios alone."
    tables = f"Seeds 0 to {seeds - 1}.\n\n{verdict}\n\n{markdown(chosen, references, table)}"
    print(report if options.json else tables)
    if options.write:
        _write(report, tables)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one scenario and two seeds, below a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help="keep the result beside this file")
    parser.add_argument("--seeds", type=int, help=f"runs of each search in each scenario; {SEEDS}")
    parser.add_argument("--scenario", action="append", choices=list(ALL), help="instead of all hidden ones")
    parser.add_argument("--method", action="append", choices=list(SHORT), help="instead of all of them")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    return parser.parse_args()


def _write(report: str, tables: str) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(report + "\n")
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n\n{tables.strip()}\n\n{END}{after}")


def _default_scenarios(options: argparse.Namespace) -> Sequence[str]:
    return [QUICK_SCENARIO] if options.quick else [scenario.name for scenario in HIDDEN]


def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _run(job: Job) -> tuple[tuple[str, str, int], Scores]:
    scenario = ALL[job.scenario]
    history = METHODS[job.method](scenario, job.seed, job.budget_s)
    return (job.scenario, job.method, job.seed), scores(history, job.reference, CHECKPOINTS_S)


class _Progress:
    """On standard error, once a second at most: how much is done and how long the rest takes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun_s = time.monotonic()
        self._shown_s = 0.0

    def show(self, done: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < 1 and done < self._total:
            return
        self._shown_s = now_s
        left_s = (now_s - self._begun_s) * (self._total - done) / done
        end = "\n" if done == self._total else ""
        print(f"\r{done} of {self._total} runs, {left_s:.0f} s left  ", end=end, file=sys.stderr, flush=True)


def _table(
    results: Mapping[tuple[str, str, int], Scores],
    chosen: Sequence[Scenario],
    methods: Sequence[str],
    seeds: int,
) -> Table:
    return {
        scenario.name: {
            method: cell([results[scenario.name, method, seed] for seed in range(seeds)])
            for method in methods
        }
        for scenario in chosen
    }


def _judged(chosen: Sequence[Scenario], table: Table) -> Table:
    return {scenario.name: table[scenario.name] for scenario in chosen if scenario.hidden}


def _report(
    chosen: Sequence[Scenario], references: Mapping[str, Reference], table: Table, seeds: int
) -> Mapping[str, object]:
    """The goals are judged on hidden scenarios; where none was run, on those that were."""
    found = goals(_judged(chosen, table) or table)
    return {
        "summary": {
            "all_goals_met": all(goal.met for goal in found),
            "goals": [dataclasses.asdict(goal) for goal in found],
        },
        "seeds": list(range(seeds)),
        "optuna": optuna.__version__,
        "scenarios": {
            scenario.name: {
                "about": scenario.about,
                "hidden": scenario.hidden,
                "objectives": scenario.objectives,
                "reference": dataclasses.asdict(references[scenario.name]),
                "methods": {
                    method: dataclasses.asdict(each) for method, each in table[scenario.name].items()
                },
            }
            for scenario in chosen
        },
    }


if __name__ == "__main__":
    main()
