"""What the sampler is told of each way a trial can end."""

import pytest
from builders import failed, measured, objectives

from autotune.decide.told import ToldState, told
from autotune.domain.failure import Blame
from autotune.domain.trial import Interrupted, Interruption
from autotune.errors import HarnessError


def test_a_measured_trial_is_told_with_its_values_in_the_order_of_the_objectives() -> None:
    result = told(measured(s1=10.0, s8=50.0), objectives("out_tok_s@8", "out_tok_s@1"))
    assert result.state is ToldState.COMPLETE
    assert result.values == (50.0, 10.0)
    assert all(margin <= 0 for margin in result.constraints.values())


@pytest.mark.parametrize("blame", [Blame.CONFIGURATION, Blame.UNKNOWN])
def test_a_failure_of_the_settings_is_pruned_with_a_violated_constraint_and_no_number(blame: Blame) -> None:
    result = told(failed(blame), objectives())
    assert result.state is ToldState.PRUNED
    assert result.values is None
    assert max(result.constraints.values()) > 0


@pytest.mark.parametrize("blame", [Blame.ENVIRONMENT, Blame.USER, Blame.HARNESS])
def test_what_the_settings_did_not_do_teaches_the_sampler_nothing(blame: Blame) -> None:
    assert told(failed(blame), objectives()).state is ToldState.FAIL


@pytest.mark.parametrize("reason", list(Interruption))
def test_an_interrupted_trial_teaches_nothing(reason: Interruption) -> None:
    assert told(Interrupted(reason=reason), objectives()).state is ToldState.FAIL


def test_a_ladder_without_an_objective_is_a_bug_and_never_a_zero() -> None:
    with pytest.raises(HarnessError, match="out_tok_s@8"):
        told(measured(s1=10.0), objectives())
