"""Finds the settings that conflict: a failed configuration is launched again with some of them switched off.

When it fails in the same way, what was switched off has no part in the failure and stays off; when it works,
or fails in another way, that is put back. Nothing is remembered between two steps: each is concluded from the
trials there are, so that a study which is continued goes on where it was, and no launch is made whose outcome
is known.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from autotune.decide.lessons.reduction import Reduction
from autotune.domain.failure import Blame, Failure
from autotune.domain.launch import server_args
from autotune.domain.space import Configuration, SearchSpace
from autotune.domain.trial import Failed, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Launch this next; `left` launches at most are needed, this one included."""

    configuration: Configuration
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """`parameters` of `configuration`, which failed like the first, are all that makes it fail."""

    configuration: Configuration
    parameters: tuple[str, ...]
    untested: tuple[str, ...]
    """Those of them that no launch was left for."""
    launches: int


class _Answer(Enum):
    NOT_LAUNCHED = "not launched"
    SAME = "fails in the same way"
    OTHER = "works, or fails in another way"
    NONE = "nothing is known though it was launched"


def isolate(
    failed: TrialRecord,
    records: Sequence[TrialRecord],
    space: SearchSpace,
    forbids: Callable[[Configuration], bool],
    limit: int,
) -> Probe | Conflict | None:
    """The next launch on the way to the conflict in `failed`, or the conflict; None when there is none.

    There is none when the same settings worked at another time, or when it fails with nothing set at all.
    What `forbids` is never launched, and no more than `limit` launches are made.
    """
    history = _History(failed, records, space)
    if limit < 1 or history.worked(failed.configuration):
        return None
    state = Reduction(space, failed.configuration, records)
    # What failed once may have been chance; a further failure of it, or of what is left of it, is none.
    failures = history.failures(failed.configuration)
    launches = failures - 1
    while group := state.next_group():
        candidate = state.without(group)
        reserve = 1 if failures < 2 else 0
        answer = _Answer.NONE
        if candidate is not None and not forbids(candidate):
            answer = history.answer(candidate)
            if answer is _Answer.NOT_LAUNCHED and launches + reserve < limit:
                return Probe(configuration=candidate, left=limit - launches)
            launches += history.launched_for_it(candidate)
        if answer is _Answer.SAME and candidate is not None:
            failures += 1
            state.leave_off(group, candidate)
        else:
            state.put_back(group, tested=answer is _Answer.OTHER)
    if failures < 2 and launches < limit and not history.unclear(failed.configuration):
        return Probe(configuration=failed.configuration, left=1)
    if failures < 2 or not state.needed:
        return None
    return Conflict(
        configuration=state.current,
        parameters=tuple(state.needed),
        untested=tuple(name for name in state.needed if name not in state.tested),
        launches=launches,
    )


def same_way(one: Failure, other: Failure) -> bool:
    """Whether two failures are the same: the same rule and line, numbers in it aside."""
    if one.rule is None and one.root_line is None:
        return (one.kind, one.phase, other.rule, other.root_line) == (other.kind, other.phase, None, None)
    return _key(one) == _key(other)


def _key(failure: Failure) -> tuple[str | None, str, str]:
    line = re.sub(r"0x[0-9a-f]+|\d+(?:\.\d+)?", "#", failure.root_line or "")
    innermost = failure.frames[-1].partition(" ")[0] if failure.frames and failure.rule is None else ""
    return failure.rule, line, innermost


class _History:
    """What the trials say of configurations, by what they put on the command line."""

    def __init__(self, failed: TrialRecord, records: Iterable[TrialRecord], space: SearchSpace) -> None:
        self._failed = failed
        self._space = space
        self._tries: dict[object, list[TrialRecord]] = {}
        for record in records:
            self._tries.setdefault(self._words(record.configuration), []).append(record)

    def _words(self, configuration: Configuration) -> object:
        return server_args(self._space, configuration).words

    def _of(self, configuration: Configuration) -> list[TrialRecord]:
        return self._tries.get(self._words(configuration), [])

    def worked(self, configuration: Configuration) -> bool:
        return any(record.works for record in self._of(configuration))

    def failures(self, configuration: Configuration) -> int:
        """How often it failed like the first."""
        return sum(self._like_the_first(record) for record in self._of(configuration))

    def unclear(self, configuration: Configuration) -> bool:
        """Whether it was launched once more and that said nothing: it failed otherwise, or was cut short."""
        later = [r for r in self._of(configuration) if r.number > self._failed.number]
        return any(not self._like_the_first(record) for record in later)

    def answer(self, configuration: Configuration) -> _Answer:
        tries = self._of(configuration)
        if not tries:
            return _Answer.NOT_LAUNCHED
        if self.worked(configuration):
            return _Answer.OTHER
        if any(self._like_the_first(record) for record in tries):
            return _Answer.SAME
        verdicts = [r for r in tries if r.failure and r.failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN)]
        return _Answer.OTHER if verdicts else _Answer.NONE

    def launched_for_it(self, configuration: Configuration) -> int:
        """1 when it was launched since the first failure, else 0: what was known before costs nothing."""
        return int(any(record.number > self._failed.number for record in self._of(configuration)))

    def _like_the_first(self, record: TrialRecord) -> bool:
        first = self._failed.failure
        return (
            isinstance(record.outcome, Failed)
            and first is not None
            and same_way(first, record.outcome.failure)
        )
