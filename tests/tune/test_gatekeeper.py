"""What keeps configurations from being launched, asked by a real course of a real search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from builders import environment, failed, failure, measured, objectives, record, spec
from hypothesis import given, settings
from hypothesis import strategies as st
from lesson_lab import BOOL, crash, parameter

from autotune.decide.told import told
from autotune.domain.expression import Expression
from autotune.domain.failure import Blame, FailureKind
from autotune.domain.launch import ServerArgs
from autotune.domain.lesson import Finding, Lesson, LessonForm
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import Configuration, IntDomain, SearchSpace, Value
from autotune.domain.trial import (
    Failed,
    Interrupted,
    Interruption,
    Measured,
    Origin,
    Outcome,
    Proposal,
    TrialRecord,
)
from autotune.domain.validation import Accepted, NotKnown, Refused, Validation
from autotune.search.study import OptunaSearch
from autotune.tune import gatekeeper
from autotune.tune.course import Course
from autotune.tune.gatekeeper import AUDIT_GAP, FAR, LONGEST_MESSAGE, Gatekeeper
from autotune.wiring.lessons import learner_of

LENGTH = parameter("max_model_len", IntDomain(low=1, high=400))
SPACE = SearchSpace(
    name="kept",
    parameters=(
        LENGTH,
        parameter("eager", BOOL),
        parameter("prefix", BOOL),
        parameter("mode", IntDomain(low=1, high=4)),
    ),
)
SPEC = spec(SPACE, objectives=objectives("out_tok_s@8"))
LEARNER = learner_of(SPEC, environment())
OUT_OF_MEMORY = Failed(failure=failure(kind=FailureKind.GPU_OOM))


def _settings(args: ServerArgs) -> dict[str, str]:
    """Flags with their values; a switch is `yes` or `no`."""
    given, flags = {}, list(args.flags)
    while flags:
        name = flags.pop(0).removeprefix("--")
        if flags and not flags[0].startswith("--"):
            given[name] = flags.pop(0)
        else:
            given[name.removeprefix("no-")] = "no" if name.startswith("no-") else "yes"
    return given


@dataclass
class Vllm:
    """A validator in memory: `says` by the settings; what it was asked is kept."""

    says: Callable[[Mapping[str, str]], Validation] = lambda _: NotKnown(why="nobody asked for more")
    asked: list[Mapping[str, str]] = field(default_factory=list)

    def validate(self, args: ServerArgs) -> Validation:
        self.asked.append(_settings(args))
        return self.says(_settings(args))


@dataclass(frozen=True)
class Short:
    needed_bytes: float
    available_bytes: float

    @property
    def ratio(self) -> float:
        return self.needed_bytes / self.available_bytes

    @property
    def why(self) -> str:
        return f"{self.needed_bytes} bytes are needed, and there are {self.available_bytes}"


@dataclass(frozen=True)
class Bytes:
    """A memory model and its gate: a token of the context takes a byte, and there are so many."""

    there: float = 100.0

    def calibrated(self, _space: SearchSpace, _records: Sequence[TrialRecord]) -> "Bytes":
        return self

    def shortage(self, configuration: Configuration) -> Short | None:
        needed = configuration.values.get("max_model_len", 0)
        assert isinstance(needed, int)
        return Short(needed, self.there) if needed > self.there else None


@dataclass
class Shelf:
    lessons: list[Lesson] = field(default_factory=list)

    def all(self) -> Sequence[Lesson]:
        return tuple(self.lessons)

    def add(self, lesson: Lesson) -> None:
        self.lessons.append(lesson)


@dataclass
class Night:
    """A study without servers: `server` says how the launch of a configuration ends."""

    server: Callable[[Mapping[str, Value]], Outcome] = lambda _: measured(s1=1.0, s8=2.0)
    vllm: Vllm | None = None
    memory: Bytes | None = None
    space: SearchSpace = SPACE
    records: list[TrialRecord] = field(default_factory=list)
    shelf: Shelf = field(default_factory=Shelf)
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go_on()

    def go_on(self) -> None:
        """As if the study had been stopped: all but records and lessons is new."""
        study = replace(SPEC, space=self.space)
        self.search = OptunaSearch(study, None)
        for kept in self.records:
            self._told(kept)
        self.course = Course(
            learner=replace(LEARNER, space=self.space),
            shelf=self.shelf,
            store=self,  # type: ignore[arg-type]
            search=self.search,
            observer=self,  # type: ignore[arg-type]
            validator=self.vllm,
            memory=self.memory,
        )

    def count_refused(self, refused: Sequence[Refusal]) -> None:
        self.refused += refused

    def note(self, text: str) -> None:
        self.notes.append(text)

    def next(self) -> Proposal | None:
        return self.course.next(self.records, self.course.learn(self.records), 1e9)

    def launch(self, proposal: Proposal) -> TrialRecord:
        configuration = proposal.configuration
        made = record(len(self.records), self.server(configuration.values), dict(configuration.values))
        self.records.append(replace(made, origin=proposal.origin))
        self._told(self.records[-1])
        return self.records[-1]

    def run(self, trials: int) -> Sequence[TrialRecord]:
        """So many launches, or as many as there are; those that were made."""
        begun = len(self.records)
        while len(self.records) < begun + trials and (proposal := self.next()) is not None:
            self.launch(proposal)
        return self.records[begun:]

    def _told(self, made: TrialRecord) -> None:
        assert made.outcome is not None
        self.search.tell(
            self.search.begin(made.configuration, made.origin), told(made.outcome, SPEC.objectives, ())
        )


def _length(record: TrialRecord) -> int:
    """0 where that is left to vLLM."""
    length = record.configuration.values.get("max_model_len", 0)
    assert isinstance(length, int)
    return length


def _lesson(forbids: str) -> Lesson:
    finding = Finding(form=LessonForm.NO_GOOD, forbids=Expression.parse(forbids))
    return Lesson(
        number=1,
        finding=finding,
        why="",
        kind=FailureKind.ENGINE_CRASH,
        trial=0,
        study="x",
        scope=LEARNER.scope,
    )


def _keeper(records: Sequence[TrialRecord] = (), **asked: object) -> Gatekeeper:
    fields: dict[str, object] = {"lessons": (), "memory": None, "validator": None, **asked}
    return Gatekeeper(learner=LEARNER, records=records, **fields)  # type: ignore[arg-type]


def _of(**values: Value) -> Configuration:
    return Configuration(values=values)


# --- One configuration


def test_the_cheapest_is_asked_first_and_nobody_after_a_refusal() -> None:
    vllm = Vllm(lambda given: Refused(text="no\n") if given["mode"] == "3" else Accepted())
    keeper = _keeper(lessons=[_lesson("mode == 1")], memory=Bytes(), validator=vllm)
    grounds = []
    for mode, length in ((1, 400), (2, 400), (3, 50), (4, 50)):
        refusal = keeper.refuses(_of(mode=mode, max_model_len=length))
        grounds.append(refusal and refusal.grounds)
    assert grounds == [Grounds.LESSON, Grounds.MEMORY, Grounds.VLLM, None]
    assert [given["mode"] for given in vllm.asked] == ["3", "4"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Traceback:\n  File x\nValueError: 7 is too many\n\n", "vLLM: ValueError: 7 is too many"),
        ("x" * 1000, f"vLLM: {'x' * LONGEST_MESSAGE}..."),
        ("\n", "vLLM: refused without a word"),
    ],
)
def test_what_vllm_says_is_told_on_one_line(text: str, why: str) -> None:
    refusal = _keeper(validator=Vllm(lambda _: Refused(text=text))).refuses(_of(mode=1))
    assert refusal == Refusal(grounds=Grounds.VLLM, why=why)


def test_what_nobody_knows_is_launched() -> None:
    assert _keeper(validator=Vllm()).refuses(_of(mode=1)) is None
    assert _keeper().refuses(_of(mode=1)) is None


def test_the_baseline_is_refused_by_lessons_alone() -> None:
    vllm = Vllm(lambda _: Refused(text="no"))
    assert _keeper(memory=Bytes(0.0), validator=vllm).refuses(Configuration()) is None
    assert _keeper(lessons=[_lesson("1 == 1")]).refuses(Configuration()) is not None


EAGER = record(3, measured(s1=1.0), {"eager": True, "mode": 1})


def _all_one(given: Mapping[str, str]) -> Validation:
    """With eager on, the mode makes no difference."""
    return Accepted(effective={"mode": 0 if given.get("eager") == "yes" else int(given["mode"])})


def test_what_vllm_makes_the_same_of_as_of_a_trial_is_not_launched() -> None:
    keeper = _keeper([EAGER], validator=Vllm(_all_one))
    refusal = keeper.refuses(_of(eager=True, mode=2))
    assert refusal is not None
    assert refusal.grounds is Grounds.TWIN
    assert "trial 3" in refusal.why
    assert keeper.refuses(_of(eager=False, mode=2)) is None
    assert keeper.refuses(_of(eager=True, mode=1)) is None, "the trial itself is no twin of it"


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (failed(), True),
        (failed(Blame.ENVIRONMENT), False),
        (Interrupted(reason=Interruption.BUDGET), False),
        (None, False),
    ],
)
def test_a_twin_counts_only_if_it_was_tried_to_the_end(outcome: Outcome | None, counts: bool) -> None:
    keeper = _keeper([replace(EAGER, outcome=outcome)], validator=Vllm(_all_one))
    assert (keeper.refuses(_of(eager=True, mode=2)) is not None) is counts


def test_without_effective_values_nothing_is_a_twin() -> None:
    assert _keeper([EAGER], validator=Vllm(lambda _: Accepted())).refuses(_of(eager=True, mode=2)) is None


def test_an_estimate_never_refuses_what_asks_for_no_more_than_something_that_worked() -> None:
    worked = record(0, measured(s1=1.0), {"max_model_len": 150})
    keeper = _keeper([worked, record(1, failed(), {"max_model_len": 160})], memory=Bytes())
    assert [keeper.refuses(_of(max_model_len=n)) is None for n in (120, 150, 151, 160)] == [
        True,
        True,
        False,
        False,
    ]


# --- The course of a night


def test_refused_draws_are_not_launched_and_counted_by_their_grounds() -> None:
    def says(given: Mapping[str, str]) -> Validation:
        if given.get("mode") == "4":
            return Refused(text="ValueError: mode 4")
        return Accepted(effective={name: value for name, value in given.items() if name != "prefix"})

    night = Night(vllm=Vllm(says), memory=Bytes(300.0))
    launched = [r for r in night.run(30) if r.configuration.values]
    short = [r for r in launched if _length(r) > max([300, *map(_length, launched[: launched.index(r)])])]
    assert {r.origin for r in short} <= {Origin.AUDIT}
    assert not any(r.configuration.values.get("mode") == 4 for r in launched)
    effective = {tuple((n, v) for n, v in r.configuration.values.items() if n != "prefix") for r in launched}
    assert len(effective) == len(launched)
    assert {Grounds.MEMORY, Grounds.VLLM} <= {refusal.grounds for refusal in night.refused}


def _audits(records: Sequence[TrialRecord]) -> list[int]:
    """How many trials of the search were before each audit."""
    searched = [r for r in records if r.origin in (Origin.SAMPLED, Origin.LOCAL, Origin.AUDIT)]
    return [number for number, r in enumerate(searched) if r.origin is Origin.AUDIT]


@pytest.fixture
def eager_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second chance is taken."""
    monkeypatch.setattr(gatekeeper, "AUDIT_SHARE", 0.5)


@pytest.mark.usefixtures("eager_audits")
@pytest.mark.parametrize("there", [130, 300])
def test_now_and_then_what_lacks_little_memory_is_launched_to_learn_from_it(there: int) -> None:
    night = Night(memory=Bytes(there))
    records = night.run(35)
    assert _audits(records)
    audits = _audits(records)
    assert all(later - earlier > AUDIT_GAP for earlier, later in zip([-1, *audits], audits, strict=False))
    proven = float(there)
    for made in records:
        if made.origin is Origin.AUDIT:
            assert proven < _length(made) < FAR * there
        elif made.configuration.values:
            assert _length(made) <= proven
        if made.configuration.values:
            proven = max(proven, _length(made))


@pytest.mark.usefixtures("eager_audits")
def test_what_vllm_refuses_is_no_audit() -> None:
    night = Night(
        memory=Bytes(100.0),
        vllm=Vllm(
            lambda given: Refused(text="no") if int(given.get("max-model-len", 0)) > 100 else Accepted()
        ),
    )
    assert not _audits(night.run(25))


def test_when_only_memory_refuses_what_is_left_the_closest_call_is_launched() -> None:
    night = Night(server=lambda _: OUT_OF_MEMORY, memory=Bytes(0.5))
    baseline, *others = night.run(4)
    assert baseline.origin is Origin.BASELINE
    assert {r.origin for r in others} == {Origin.AUDIT}
    assert all(_length(r) <= 3 for r in others), "of 3000 draws the ones that lack least"


@pytest.mark.parametrize("vllm", [Vllm(lambda _: Refused(text="no")), None])
def test_what_a_lesson_or_vllm_refuses_is_never_launched_even_if_nothing_else_is_left(
    vllm: Vllm | None,
) -> None:
    night = Night(vllm=vllm, memory=Bytes(0.5))
    if vllm is None:
        night.shelf.add(_lesson("max_model_len >= 1"))
    assert [r.origin for r in night.run(3)] == [Origin.BASELINE]


def test_a_probe_that_vllm_refuses_is_not_launched() -> None:
    """Everything but that is found out all the same: who conflicts with whom."""

    def server(values: Mapping[str, Value]) -> Outcome:
        both = values.get("eager") is True and values.get("prefix") is True
        return crash() if both else measured(s1=1.0, s8=1.0)

    def says(given: Mapping[str, str]) -> Validation:
        return Refused(text="no") if "mode" not in given and given else Accepted()

    for vllm, without_mode in ((None, True), (Vllm(says), False)):
        night = Night(server=server, vllm=vllm)
        night.run(30)
        probes = [r.configuration.values for r in night.records if r.origin is Origin.ISOLATION]
        assert probes
        assert any("mode" not in values for values in probes) is without_mode
        assert night.shelf.lessons
        for lesson in night.shelf.lessons:
            assert {"eager", "prefix"} <= lesson.finding.forbids.names


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 24))
def test_a_night_stopped_anywhere_goes_on_as_if_it_had_not(stop_after: int) -> None:
    def server(values: Mapping[str, Value]) -> Outcome:
        length = values.get("max_model_len", 1)
        assert isinstance(length, int)
        if values.get("eager") is True and values.get("prefix") is True:
            return crash()
        return OUT_OF_MEMORY if length > 140 else measured(s1=1.0, s8=400.0 - length)

    def says(given: Mapping[str, str]) -> Validation:
        if given.get("mode") == "4":
            return Refused(text="no")
        return Accepted(effective={n: v for n, v in given.items() if n != "prefix" or v == "yes"})

    nights = [Night(server=server, vllm=Vllm(says), memory=Bytes(120.0)) for _ in range(2)]
    nights[0].run(25)
    nights[1].run(stop_after)
    nights[1].go_on()
    nights[1].run(25 - stop_after)
    straight, stopped = ([(r.origin, r.configuration) for r in night.records] for night in nights)
    assert straight == stopped
    assert isinstance(nights[0].records[0].outcome, Measured)
