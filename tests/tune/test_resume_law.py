"""The law of resuming: a study that is killed goes on as if it had never stopped.

The real loop, course, store and Optuna study, on a clock of its own; it is killed at any trial, at any of the
moments between which it has something to write down.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bed import SEARCH_ONLY, Bed
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from simulated import LAUNCH_S, MEASURE_S, SPACE, Clock, Killed, ended, world_of

from autotune.domain.space import Configuration
from autotune.domain.trial import TrialRecord
from autotune.tune.study import StudyEnd, StudyLoop

LIMITS = replace(SEARCH_ONLY, control_every=4, finalists=2)
TRIAL_S = LAUNCH_S + MEASURE_S


def _bed(folder: str, command: tuple[str, ...], seed: int) -> Bed:
    return Bed(folder=Path(folder), command=command, limits=LIMITS, space=SPACE, seed=seed)


def _killed_after(loop: StudyLoop, number: int, moment: str) -> StudyLoop:
    """The loop, killed at that moment of trial `number`."""

    def deadly(call: Callable[..., object], at: Callable[[object], bool]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            result = call(*args, **kwargs)
            if at(args[0]):
                raise Killed
            return result

        return wrapped

    match moment:
        case "begun":
            begin = loop.store.begin
            loop.store.begin = deadly(begin, lambda record: _number(record) == number)  # type: ignore
        case "kept":
            finish = loop.store.finish
            loop.store.finish = deadly(finish, lambda n: n == number)  # type: ignore
        case "told":
            tell = loop.search.tell
            loop.search.tell = deadly(tell, lambda n: n == number)  # type: ignore
    return loop


def _number(record: object) -> int:
    assert isinstance(record, TrialRecord)
    return record.number


# Shrinking would run a hundred studies more to tell of a shorter one.
@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 1000),
    moment=st.sampled_from(["begun", "kept", "told"]),
    number=st.integers(0, 21),
    trials=st.sampled_from([14, 20]),
)
@example(seed=19, moment="begun", number=7, trials=20)  # in the search
@example(seed=19, moment="begun", number=5, trials=20)  # in a control
@example(seed=19, moment="begun", number=16, trials=20)  # in a block of the finals
@example(seed=19, moment="kept", number=17, trials=20)  # between two blocks
def test_a_killed_study_launches_what_it_would_have_launched(
    fake_vllm: tuple[str, ...], seed: int, moment: str, number: int, trials: int
) -> None:
    end, launched = _undisturbed(fake_vllm, seed, trials)
    with TemporaryDirectory() as folder:
        bed = _bed(folder, fake_vllm, seed)
        clock = Clock(deadline_s=trials * TRIAL_S)
        try:
            _killed_after(world_of(bed, clock, seed=seed), number, moment).run()
        except Killed:
            assert world_of(bed, clock, seed=seed).run() == end
        assert ended(bed) == launched
        assert clock.now_s <= clock.deadline_s


@cache
def _undisturbed(
    command: tuple[str, ...], seed: int, trials: int
) -> tuple[StudyEnd, list[tuple[Configuration, int | None]]]:
    with TemporaryDirectory() as folder:
        bed = _bed(folder, command, seed)
        end = world_of(bed, Clock(deadline_s=trials * TRIAL_S), seed=seed).run()
        return end, ended(bed)
