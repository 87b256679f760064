"""A study without servers: configurations fail or work by a rule of the test, and everything else is real."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from builders import environment, failure, measured, record

from autotune.decide.lessons.gate import scope_of
from autotune.decide.lessons.plan import Learner
from autotune.decide.schedule import due_warm_retry
from autotune.decide.space.sampling import sample
from autotune.domain.failure import Blame, FailureKind, Phase
from autotune.domain.launch import settings
from autotune.domain.lesson import Lesson, Scope
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Domain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
    Value,
)
from autotune.domain.study import Limits
from autotune.domain.trial import Failed, Origin, Outcome, TrialRecord
from autotune.files.lessons import read_lessons

SCOPE = scope_of(environment(), "/models/tiny", "LlamaForCausalLM")
BOOL = CategoricalDomain(choices=(False, True))
WORKS = measured(s1=1.0, s8=2.0)


def parameter(name: str, domain: Domain, omit: tuple[Value, ...] = ()) -> Parameter:
    target = Target(kind=TargetKind.FLAG, name="--" + name.replace("_", "-"))
    return Parameter(name=name, domain=domain, target=target, omit=omit)


def crash(line: str = "AssertionError", **changes: object) -> Failed:
    fields: dict[str, object] = {
        "kind": FailureKind.ENGINE_CRASH,
        "phase": Phase.FIRST_REQUEST,
        "why": "The bookkeeping contradicted itself.",
        "root_line": line,
        "rule": "attention-metadata-assertion",
        "confidence": 0.8,
    }
    return Failed(failure=failure(Blame.CONFIGURATION, **{**fields, **changes}))


def modes(count: int) -> SearchSpace:
    """`count` switches and three numbers."""
    switches = tuple(parameter(f"mode_{i}", BOOL) for i in range(count))
    numbers = tuple(parameter(f"size_{i}", IntDomain(low=1, high=64)) for i in range(3))
    return SearchSpace(name="modes", parameters=(*switches, *numbers))


@dataclass
class Lab:
    """What the loop does, with `server` in place of launching."""

    space: SearchSpace
    server: Callable[[Mapping[str, Value]], Outcome]
    limits: Limits = field(default_factory=Limits)
    scope: Scope = SCOPE
    records: list[TrialRecord] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)

    @property
    def learner(self) -> Learner:
        return Learner(
            study="lab", space=self.space, scope=self.scope, book=read_lessons(), limits=self.limits
        )

    def learn(self) -> None:
        while lesson := self.learner.lesson_due(self.records, self.lessons):
            self.lessons.append(lesson)

    def launch(self, configuration: Configuration, origin: Origin) -> TrialRecord:
        outcome = self.server(settings(self.space, configuration))
        made = record(len(self.records), outcome, dict(configuration.values))
        kept = replace(made, origin=origin)
        self.records.append(kept)
        self.learn()
        return kept

    def advance(self) -> bool:
        """One launch that a failure calls for; False when none does."""
        forbids = self.learner.gate(self.records, self.lessons).forbids
        warm = due_warm_retry(self.records, self.space, self.limits.retries, forbids)
        if warm is not None:
            self.launch(warm, Origin.RETRY)
            return True
        probe = self.learner.probe_due(self.records, self.lessons)
        if probe is None:
            return False
        self.launch(probe.configuration, Origin.ISOLATION)
        return True

    def settle(self) -> int:
        """All launches that failures call for; how many there were."""
        launches = 0
        while self.advance():
            launches += 1
            assert launches < 200, "never comes to an end"
        return launches

    def search(self, rng: Random, trials: int) -> None:
        """Random trials, each followed by what it calls for; nothing forbidden is ever launched."""
        self.launch(Configuration(), Origin.BASELINE)
        for _ in range(trials):
            gate = self.learner.gate(self.records, self.lessons)
            candidate = sample(self.space, rng)
            if candidate is not None and not gate.forbids(candidate):
                self.launch(candidate, Origin.SAMPLED)
                self.settle()
