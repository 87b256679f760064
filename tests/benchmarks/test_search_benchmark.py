"""`benchmarks/search.py --quick --json`: what it prints, and that gate and lessons save time in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from search_sim.summary import DEFAULT_ONLY, OURS, RANDOM, RIVALS, Estimate

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "search.py"


@pytest.fixture(scope="module")
def report() -> dict[str, dict[str, object]]:
    words = [sys.executable, str(SCRIPT), "--quick", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=110)
    assert "0 s left" in done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def test_it_says_of_each_goal_whether_it_is_met(report: dict[str, dict[str, object]]) -> None:
    summary = report["summary"]
    assert isinstance(summary["goals"], list)
    assert len(summary["goals"]) == 5
    for goal in summary["goals"]:
        assert goal.keys() == {"name", "met", "figure", "wanted", "missed"}
        assert isinstance(goal["met"], bool)
    assert summary["all_goals_met"] is all(goal["met"] for goal in summary["goals"])


def test_the_gate_loses_less_time_in_crashes_than_random_search(
    report: dict[str, dict[str, object]],
) -> None:
    assert report["seeds"] == [0, 1]
    ((_, scenario),) = report["scenarios"].items()
    methods = scenario["methods"]  # type: ignore[index]
    assert set(methods) == {OURS, DEFAULT_ONLY, *RIVALS}
    for each in methods.values():
        for estimate in (*each["quality"].values(), each["volume"], each["crash_share"]):
            assert 0 <= estimate["low"] <= estimate["mean"] <= estimate["high"] <= 1.02
    assert methods[OURS]["crash_share"]["mean"] < methods[RANDOM]["crash_share"]["mean"]
    assert methods[OURS]["failures"] < methods[RANDOM]["failures"]


def test_intervals_cover_the_mean_and_shrink_with_more_seeds() -> None:
    few, many = Estimate.of([0.5, 0.7, 0.6, 0.8]), Estimate.of([0.5, 0.7, 0.6, 0.8] * 10)
    for estimate in (few, many):
        assert estimate.mean == pytest.approx(0.65)
        assert estimate.low < estimate.mean < estimate.high
    assert many.high - many.low < few.high - few.low
    assert Estimate.of([0.9] * 3).clearly_beats(Estimate.of([0.8] * 3))
    assert not Estimate.of([0.9, 0.7]).clearly_beats(Estimate.of([0.8, 0.75]))
    assert Estimate.of([0.985]).beats(Estimate.of([0.99]))
    assert not Estimate.of([0.9]).beats(Estimate.of([0.95]))
