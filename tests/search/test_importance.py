"""What mattered is told from what did not, and from chance; the same each time, without a word of Optuna."""

import logging
import math
from random import Random

import pytest
from builders import objectives, record
from landscape import WORKLOAD, MadeServer, space

from autotune.decide.ranking import Candidate
from autotune.decide.space.sampling import sample
from autotune.search.importance import ENOUGH, importances

SPACE = space(WORKLOAD)


def made(count: int, value_of: str = "server", seed: int = 0) -> list[Candidate]:
    """Random configurations with what the made-up server gives at 16 streams and at 1, or mere chance."""
    rng = Random(seed)  # noqa: S311
    found = []
    for number in range(1, count + 1):
        configuration = sample(SPACE, rng)
        assert configuration is not None
        server = MadeServer(configuration.values, seed=number)
        points = [server.point(streams, 0).point.out_tok_s for streams in (16, 1)]
        chance = [rng.lognormvariate(0, 1) for _ in points]
        trial = record(number, None, dict(configuration.values))
        found.append(
            Candidate(record=trial, values=tuple(points if value_of == "server" else chance), launches=1)
        )
    return found


BASELINE = Candidate(record=record(0, None, values={}), values=(700.0, 60.0), launches=3)
WANTED = objectives("out_tok_s@16", "out_tok_s@1")


def test_settings_that_matter_are_told_from_those_that_do_not() -> None:
    found = importances([BASELINE, *made(200)], WANTED, SPACE)
    for name in ("out_tok_s@16", "out_tok_s@1"):
        assert math.isclose(sum(found[name].shares.values()), 1.0)
        assert list(found[name].shares.values()) == sorted(found[name].shares.values(), reverse=True)
    assert {"max_num_seqs", "enforce_eager"} <= found["out_tok_s@16"].beyond_chance
    # At one stream as many sequences run as there are: their limit is worth nothing there.
    assert "max_num_seqs" not in found["out_tok_s@1"].beyond_chance
    assert {"speculation", "enforce_eager"} <= found["out_tok_s@1"].beyond_chance
    # Only set with one way of speculation, in a third of the configurations.
    assert "ngram_tokens" in found["out_tok_s@1"].shares


def test_of_what_is_mere_chance_hardly_anything_stands_out() -> None:
    by_chance = [
        len(found.beyond_chance)
        for seed in range(4)
        for found in importances(made(60, "chance", seed), WANTED, SPACE).values()
    ]
    # 1 in 20 of 12 parameters and 8 looks: about 5 in all.
    assert sum(by_chance) <= 14


def test_the_direction_of_the_objective_counts() -> None:
    found = made(200)
    as_time = [
        Candidate(record=c.record, values=tuple(1 / value for value in c.values), launches=1) for c in found
    ]
    rates = importances(found, WANTED, SPACE)
    times = importances(as_time, objectives("ttft_p50@16", "ttft_p50@1"), SPACE)
    assert [i.shares for i in rates.values()] == [i.shares for i in times.values()]


def test_it_is_the_same_each_time_and_silent(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("optuna").setLevel(logging.INFO)
    found = made(40)
    assert importances(found, WANTED, SPACE) == importances(found, WANTED, SPACE)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_too_few_configurations_are_no_importance_but_a_reason() -> None:
    found = importances([BASELINE, *made(ENOUGH - 1)], WANTED, SPACE)
    for importance in found.values():
        assert importance.shares == {}
        assert importance.missing == "only 19 configurations were measured beside the baseline; 20 are needed"
    assert importances([BASELINE, *made(ENOUGH)], WANTED, SPACE)["out_tok_s@1"].missing is None


def test_equal_values_are_a_reason() -> None:
    equal = [Candidate(record=c.record, values=(1.0, 2.0), launches=1) for c in made(30)]
    reasons = {found.missing for found in importances(equal, WANTED, SPACE).values()}
    assert reasons == {"all configurations gave the same"}
