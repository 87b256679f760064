"""What the page knows of each trial, as plain values for its script: few, because there can be thousands."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from autotune.decide.ranking import values_of
from autotune.domain.effective import DifferenceKind
from autotune.domain.failure import Failure
from autotune.domain.launch import shell_lines
from autotune.domain.measurement import Point, Quantiles
from autotune.domain.metric import METRICS
from autotune.domain.objective import Objective
from autotune.domain.study import StudyInfo
from autotune.domain.trial import TrialRecord
from autotune.report import words
from autotune.report.failure import plain
from autotune.report.figures.text import shown as shown_value
from autotune.report.limits import broken_limits
from autotune.report.view import StudyView

_UNITS: Mapping[str, tuple[str, float]] = {"s": ("ms", 1000.0), "share": ("%", 100.0)}
"""Units that are shown as others, and by how many times larger a number then is."""


def objective_documents(objectives: Sequence[Objective]) -> list[Mapping[str, object]]:
    """Name and unit of each objective, and what its values are multiplied with to be shown in it."""
    found: list[Mapping[str, object]] = []
    for objective in objectives:
        plain_unit = METRICS[objective.metric].unit
        unit, scale = _UNITS.get(plain_unit, (plain_unit, 1.0))
        found.append({"name": str(objective), "unit": unit, "scale": scale})
    return found


def trial_documents(view: StudyView) -> list[Mapping[str, object]]:
    """All trials. Text from outside has nothing in it that cannot be seen; only `command` is as it is."""
    front = {candidate.record.number for candidate in view.front}
    taught: Mapping[int, list[str]] = defaultdict(list)
    for lesson, _ in view.lessons:
        if lesson.study == view.info.name:
            taught[lesson.trial].append(plain(str(lesson.finding)))
    found: list[Mapping[str, object]] = []
    for record in view.records:
        breaks = bool(broken_limits(record, view.info.metric_limits))
        standing = {"front": record.number in front, "breaks": breaks, "lessons": taught[record.number]}
        found.append({**_trial(record, view.info), **standing})
    return found


def _trial(record: TrialRecord, info: StudyInfo) -> Mapping[str, object]:
    state = words.state(record)
    values = [o.value(record.points) if state == "measured" else None for o in info.objectives]
    command = shell_lines(record.argv, record.env)
    shown = visible(command)
    return {
        "number": record.number,
        "state": state,
        "purpose": words.purpose(record.origin, record.block),
        "values": [_short(value) for value in values],
        "took_s": _short(sum(record.step_s.values())) if record.step_s else None,
        "began": f"{record.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "why": plain(_why(record, info)),
        "settings": [(name, plain(shown_value(v))) for name, v in record.configuration.values.items()],
        "command": command,
        **({} if shown == command else {"shown": shown}),
        "steps": [(step.value, _short(seconds)) for step, seconds in record.step_s.items()],
        "points": [_point(point) for point in record.points],
        "notes": [plain(note) for note in _notes(record)],
        "failure": record.failure and _failure(record.failure),
        "log": plain(record.log_path or ""),
    }


def visible(command: str) -> str:
    """`command`, line by line, without anything in it that cannot be seen."""
    return "\n".join(map(plain, command.split("\n")))


def _why(record: TrialRecord, info: StudyInfo) -> str:
    """What came of a trial that gave no values, or which limits one with values breaks."""
    if values_of(record, info.objectives) is not None:
        return ", ".join(words.limits_broken(record.points, info.metric_limits))
    return words.outcome(record, info.objectives, info.metric_limits)


def _point(point: Point) -> Mapping[str, object]:
    return {
        "streams": point.streams,
        "out_tok_s": _short(point.out_tok_s),
        "ttft": _median(point.ttft_s),
        "tpot": _median(point.tpot_s),
        "suspect": point.is_suspect,
    }


def _median(sample: Quantiles | None) -> tuple[float | None, float | None, float | None]:
    """The median and the ends of its interval."""
    if sample is None:
        return None, None, None
    interval = sample.intervals.get("p50")
    ends = (interval.low, interval.high) if interval else (None, None)
    return _short(sample.p50), _short(ends[0]), _short(ends[1])


def _notes(record: TrialRecord) -> Iterator[str]:
    for point in record.points:
        at = f"At {words.counted(point.streams, 'stream')}"
        if point.failed:
            yield f"{at}, {point.failed} of {words.counted(point.done + point.failed, 'request')} failed."
        for flag in point.flags:
            yield f"{at}, {words.flag(flag)}."
    for difference in record.effective.differences if record.effective else ():
        what = "had no effect" if difference.kind is DifferenceKind.NO_EFFECT else "was changed by vLLM"
        yield f"{difference.setting} {what}: {difference.sentence}"


def _failure(failure: Failure) -> Mapping[str, object]:
    return {
        "kind": failure.kind.value,
        "phase": failure.phase.value,
        "blame": failure.blame.value,
        "why": plain(failure.why),
        "cure": plain(failure.cure),
        "root_line": plain(failure.root_line or ""),
        "line_number": failure.line_number,
        "process": plain(failure.process or ""),
    }


def _short(value: float | None) -> float | None:
    """Five figures: more than is shown, and than the noise leaves true."""
    return None if value is None else float(f"{value:.5g}")
