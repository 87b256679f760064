"""A trial as JSON says how it ended, and why."""

from builders import info, measured, record

from autotune.domain.trial import Abandoned, Interrupted, Interruption
from autotune.report.document import trial_document


def test_a_trial_whose_ladder_was_given_up_says_why_and_has_no_values() -> None:
    points = measured(s1=10.0).points
    document = trial_document(record(1, Abandoned(why="behind trial 0", points=points)), info())
    assert (document["state"], document["abandoned"]) == ("abandoned", "behind trial 0")
    assert (document["values"], document["failure"], document["interruption"]) == (None, None, None)
    assert len(document["points"]) == 1  # type: ignore[arg-type]


def test_a_trial_that_was_broken_off_says_by_what() -> None:
    document = trial_document(record(1, Interrupted(reason=Interruption.USER)), info())
    assert (document["interruption"], document["abandoned"]) == ("user", None)
