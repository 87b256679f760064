"""Keeps the search away from what it has learned: which lessons count, and what they forbid."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain.launch import settings
from autotune.domain.lesson import Lesson, Scope, Standing
from autotune.domain.machine import Device, Environment
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.space import Configuration, SearchSpace, Value
from autotune.domain.trial import TrialRecord


def measured_settings(space: SearchSpace, records: Iterable[TrialRecord]) -> list[Mapping[str, Value]]:
    """The settings of every configuration that was measured."""
    return [settings(space, r.configuration) for r in records if r.works]


def scope_of(environment: Environment, model: str, architecture: str | None) -> Scope:
    """What is learned in a study holds for. On a CPU that is the machine's processor and memory."""
    machine = environment.machine
    gpus = " + ".join(gpu.name for gpu in machine.gpus) if environment.vllm.device is not Device.CPU else ""
    return Scope(
        vllm_version=environment.vllm.version,
        model=model,
        architecture=architecture or model,
        device=gpus or f"{machine.cpu_model}, {machine.memory_bytes / 2**30:.0f} GiB",
    )


def standing(lesson: Lesson, scope: Scope, measured: Sequence[Mapping[str, Value]]) -> Standing:
    """Whether `lesson` counts under `scope`, where configurations with the settings `measured` worked."""
    if lesson.forgotten:
        return Standing.FORGOTTEN
    if not lesson.holds_in(scope):
        return Standing.ELSEWHERE
    if lesson.scope.vllm_version != scope.vllm_version:
        return Standing.EXPIRED
    if any(lesson.finding.rejects(worked) for worked in measured):
        return Standing.REFUTED
    return Standing.APPLIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The lessons that count in a study."""

    space: SearchSpace
    lessons: tuple[Lesson, ...] = ()

    def forbids(self, configuration: Configuration) -> bool:
        """Whether `configuration` need not be launched, because a lesson says how it ends."""
        return self.refuses(configuration) is not None

    def refuses(self, configuration: Configuration) -> Refusal | None:
        """Which lesson says how a launch of `configuration` ends; None without one."""
        given = settings(self.space, configuration)
        for lesson in self.lessons:
            if lesson.finding.rejects(given):
                return Refusal(grounds=Grounds.LESSON, why=f"lesson {lesson.number}: {lesson.finding}")
        return None


def gate(space: SearchSpace, scope: Scope, lessons: Iterable[Lesson], records: Iterable[TrialRecord]) -> Gate:
    """The gate of a study with these trials and lessons."""
    measured = measured_settings(space, records)
    counting = (each for each in lessons if standing(each, scope, measured) is Standing.APPLIES)
    return Gate(space=space, lessons=tuple(counting))
