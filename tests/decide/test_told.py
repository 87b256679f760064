"""What the sampler is told of each way a trial can end."""

from dataclasses import replace

import pytest
from builders import failed, measured, objectives, point, record

from autotune.decide.told import ToldState, told
from autotune.domain.failure import Blame
from autotune.domain.measurement import Quantiles
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.trial import Abandoned, Interrupted, Interruption, Measured
from autotune.errors import HarnessError
from autotune.report.words import outcome


def test_a_measured_trial_is_told_with_its_values_in_the_order_of_the_objectives() -> None:
    result = told(measured(s1=10.0, s8=50.0), objectives("out_tok_s@8", "out_tok_s@1"), ())
    assert result.state is ToldState.COMPLETE
    assert result.values == (50.0, 10.0)
    assert all(margin <= 0 for margin in result.constraints.values())


@pytest.mark.parametrize("blame", [Blame.CONFIGURATION, Blame.UNKNOWN])
def test_a_failure_of_the_settings_is_pruned_with_a_violated_constraint_and_no_number(blame: Blame) -> None:
    result = told(failed(blame), objectives(), ())
    assert result.state is ToldState.PRUNED
    assert result.values is None
    assert max(result.constraints.values()) > 0


@pytest.mark.parametrize("blame", [Blame.ENVIRONMENT, Blame.USER, Blame.HARNESS])
def test_what_the_settings_did_not_do_teaches_the_sampler_nothing(blame: Blame) -> None:
    assert told(failed(blame), objectives(), ()).state is ToldState.FAIL


@pytest.mark.parametrize("reason", list(Interruption))
def test_an_interrupted_trial_teaches_nothing(reason: Interruption) -> None:
    assert told(Interrupted(reason=reason), objectives(), ()).state is ToldState.FAIL


def test_what_was_given_up_works_and_has_no_values() -> None:
    result = told(Abandoned(why="far behind", points=(point(1, 10.0),)), objectives(), ())
    assert (result.state, result.values) == (ToldState.PRUNED, None)
    assert result.constraints == {"works": -1.0}


def test_a_trial_that_works_but_shows_too_little_is_no_failure_and_no_number() -> None:
    ladder = (replace(point(8, 50.0), ttft_s=Quantiles(n=40, p50=0.1)), point(1, 10.0))
    wanted = objectives("out_tok_s@1", "ttft_p95@8")
    result = told(Measured(points=ladder), wanted, ())
    assert (result.state, result.values) == (ToldState.PRUNED, None)
    assert result.constraints == {"works": -1.0, "scored": 1.0}
    assert outcome(record(3, Measured(points=ladder)), wanted) == (
        "out_tok_s@1 10.0 tok/s, too few requests for ttft_p95@8: 40 of 130"
    )


def test_a_ladder_without_an_objective_is_a_bug_and_never_a_zero() -> None:
    with pytest.raises(HarnessError, match="out_tok_s@8"):
        told(measured(s1=10.0), objectives(), ())


LIMITS = parse_metric_limits(["ttft_p50@8<=2s", "out_tok_s@1>=8"])


def test_what_breaks_a_limit_is_complete_with_its_values_and_by_how_much_it_breaks_it() -> None:
    ladder = (point(1, 10.0), point(8, 50.0, ttft_s=2.6))
    result = told(Measured(points=ladder), objectives(), LIMITS)
    assert (result.state, result.values) == (ToldState.COMPLETE, (50.0, 10.0))
    assert result.constraints == {
        "works": -1.0,
        "scored": -1.0,
        "limit:ttft_p50@8<=2s": pytest.approx(0.3),
        "limit:out_tok_s@1>=8": pytest.approx(-0.25),
    }


def test_what_keeps_its_limits_violates_nothing_the_limit_itself_included() -> None:
    ladder = (point(1, 8.0), point(8, 50.0, ttft_s=2.0))
    result = told(Measured(points=ladder), objectives(), LIMITS)
    assert len(result.constraints) == 4
    assert max(result.constraints.values()) <= 0


def test_a_limit_without_a_value_is_told_like_an_objective_without_one() -> None:
    ladder = (point(1, 10.0), replace(point(8, 50.0), ttft_s=Quantiles(n=10, p50=9.0)))
    result = told(Measured(points=ladder), objectives(), LIMITS)
    assert (result.state, result.values) == (ToldState.PRUNED, None)
    assert result.constraints == {"works": -1.0, "scored": 1.0}


def test_a_ladder_without_what_a_limit_is_about_is_a_bug() -> None:
    with pytest.raises(HarnessError, match="ttft_p50@4"):
        told(measured(s1=10.0, s8=50.0), objectives(), parse_metric_limits(["ttft_p50@4<=2s"]))


def test_a_failure_says_nothing_of_limits() -> None:
    assert told(failed(), objectives(), LIMITS).constraints == {"works": 1.0}
