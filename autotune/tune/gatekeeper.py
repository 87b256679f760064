"""Keeps back what need not be launched to know how it ends, and now and then lets one of these through.

Asked in this order, the cheapest first: lessons, the memory estimate, the installed vLLM itself, and whether
vLLM makes the same of a configuration as of one that was tried. Lessons and vLLM say what is; memory is
estimated, and an estimate that nobody ever tests may be wrong all night.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random

from autotune.decide.lessons.gate import Gate
from autotune.decide.lessons.plan import Learner
from autotune.domain.failure import Blame
from autotune.domain.launch import server_args
from autotune.domain.lesson import Lesson
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import Configuration, Value
from autotune.domain.trial import Failed, Interrupted, Origin, TrialRecord
from autotune.domain.validation import Accepted, Refused
from autotune.tune.ports import MemoryGate, MemoryModel, Shortage, Validator

AUDIT_SHARE = 0.05
"""Of what the memory estimate alone keeps back, how much is launched all the same."""

AUDIT_GAP = 12
"""Trials of the search from one audit to the next, and before the first: a failed launch is lost time, and
the estimate first has to learn from what vLLM says of those that work."""

FAR = 1.3
"""What needs so many times the memory there is needs no launch to be sure of: an estimate that is wrong by
that much is so for many configurations, and those that work show it."""

LONGEST_MESSAGE = 300
"""Characters of vLLM's message that a reason has."""

_SEARCHED = frozenset({Origin.FLIP, Origin.EXPERT, Origin.SAMPLED, Origin.LOCAL, Origin.AUDIT})


class Gatekeeper:
    """Of a study with these trials; `validator` and `memory` are None where they cannot be asked."""

    def __init__(
        self,
        *,
        learner: Learner,
        records: Sequence[TrialRecord],
        lessons: Sequence[Lesson],
        memory: MemoryModel | None,
        validator: Validator | None,
    ) -> None:
        self._learner = learner
        self._space = learner.space
        self._records = records
        self._known_lessons = lessons
        self._memory = memory
        self._validator = validator
        self._kept_back: list[tuple[float, Configuration]] = []

    @cached_property
    def lessons(self) -> Gate:
        """Those that count."""
        return self._learner.gate(self._records, self._known_lessons)

    def refuses(self, configuration: Configuration) -> Refusal | None:
        """Why `configuration` must not be launched; None where it may be, or is to test the memory estimate.

        The baseline is refused by lessons alone: how vLLM's defaults fail is worth knowing, in a launch of
        their own that no estimate can replace.
        """
        refusal = self.lessons.refuses(configuration)
        if refusal is not None or not configuration.values:
            return refusal
        shortage = self.shortage(configuration)
        if shortage is not None and not self._audits(configuration, shortage):
            self._kept_back.append((shortage.ratio, configuration))
            return Refusal(grounds=Grounds.MEMORY, why=shortage.why)
        return self._refused_by_vllm(configuration)

    def shortage(self, configuration: Configuration) -> Shortage | None:
        """The memory it lacks by the estimate; None as well if a launch has shown that as much is there.

        That is when something was measured that needs at least as much and has at most as much.
        """
        short = None if self._estimate is None else self._estimate.shortage(configuration)
        return None if short is None or any(_covers(proof, short) for proof in self._disproved) else short

    def hopeless(self, configuration: Configuration) -> bool:
        """Whether what was never tried needs no launch: vLLM refuses it, or it lacks far too much memory."""
        args = server_args(self._space, configuration)
        if not configuration.values or args.words in self._tried:
            return False
        short = self.shortage(configuration)
        if short is not None and short.ratio >= FAR:
            return True
        return self._validator is not None and isinstance(self._validator.validate(args), Refused)

    def least_short(self) -> Configuration | None:
        """Of what was kept back for lack of memory alone, the one that lacks least; None without any."""
        candidates = sorted(self._kept_back, key=lambda kept: kept[0])
        return next((c for _, c in candidates if self._refused_by_vllm(c) is None), None)

    def _audits(self, configuration: Configuration, shortage: Shortage) -> bool:
        """Whether this one is launched to learn whether the estimate is right."""
        if shortage.ratio >= FAR or not self._audit_due:
            return False
        # One that was broken off, and is tried again, changes nothing.
        key = f"audit:{sum(map(_has_told, self._records))}:{configuration.digest}"
        return Random(key).random() < AUDIT_SHARE  # noqa: S311 - reproducible on purpose

    @cached_property
    def _audit_due(self) -> bool:
        searched = [record.origin for record in self._records if record.origin in _SEARCHED]
        return len(searched) >= AUDIT_GAP and Origin.AUDIT not in searched[-AUDIT_GAP:]

    @cached_property
    def _estimate(self) -> MemoryGate | None:
        return None if self._memory is None else self._memory.calibrated(self._space, self._records)

    @cached_property
    def _disproved(self) -> Sequence[Shortage]:
        """The shortages that measured configurations should have had."""
        if (estimate := self._estimate) is None:
            return ()
        worked = (record.configuration for record in self._records if record.works)
        return [short for c in worked if (short := estimate.shortage(c)) is not None]

    def _refused_by_vllm(self, configuration: Configuration) -> Refusal | None:
        if self._validator is None:
            return None
        args = server_args(self._space, configuration)
        match self._validator.validate(args):
            case Refused(text=text):
                return Refusal(grounds=Grounds.VLLM, why=f"vLLM: {_message(text)}")
            case Accepted(effective=effective) if effective and args.words not in self._tried:
                if (twin := self._twins.get(_key(effective))) is not None:
                    return Refusal(grounds=Grounds.TWIN, why=f"vLLM makes the same of it as of trial {twin}")
        return None

    @cached_property
    def _tried(self) -> frozenset[object]:
        """The words of all that was launched."""
        return frozenset(server_args(self._space, r.configuration).words for r in self._records)

    @cached_property
    def _twins(self) -> Mapping[object, int]:
        """The first trial that said something of each effective configuration."""
        found: dict[object, int] = {}
        for record in self._records:
            if self._validator is not None and _has_told(record):
                answer = self._validator.validate(server_args(self._space, record.configuration))
                if isinstance(answer, Accepted) and answer.effective:
                    found.setdefault(_key(answer.effective), record.number)
        return found


def _covers(proof: Shortage, short: Shortage) -> bool:
    """Whether what works although the estimate says `proof` leaves nothing of `short`."""
    return short.needed_bytes <= proof.needed_bytes and short.available_bytes >= proof.available_bytes


def _has_told(record: TrialRecord) -> bool:
    """Whether its outcome is that of its settings, so that another launch of them would tell nothing new."""
    match record.outcome:
        case None | Interrupted():
            return False
        case Failed(failure=failure):
            return failure.blame in (Blame.CONFIGURATION, Blame.UNKNOWN)
        case _:
            return True


def _key(effective: Mapping[str, Value]) -> object:
    """Equal for equal ones; not for 1 and true."""
    return frozenset((name, repr(value)) for name, value in effective.items())


def _message(text: str) -> str:
    """What vLLM says, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    message = lines[-1] if lines else "refused without a word"
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."
