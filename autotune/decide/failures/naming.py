"""Puts a chosen event into words: the `Failure` that is kept, shown and learned from."""

import re

from autotune.decide.failures.progress import Progress, later
from autotune.decide.failures.rootcause import ENGINE_RANK, Event
from autotune.decide.failures.signatures import Weight
from autotune.decide.failures.template import Value, fill
from autotune.domain.failure import Blame, Failure, FailureKind, Phase

_MAX_ROOT_LINE = 1000
_UNKNOWN_CONFIDENCE = 0.2
_MIN_BAD_REQUESTS = 5
"""Somebody who tries a server out sends a few wrong requests; that is no failure of anything."""
_SURVIVED_FACTOR = 0.8
"""For a fault of which the log does not show that the server died of it."""
_SECRET = re.compile(
    r"\b(?:hf_|sk-)[A-Za-z0-9_-]{6,200}"  # tokens as Hugging Face and OpenAI write them
    r"|(?<=Bearer )\S{1,500}"
    r"|(?i:(?<=api-key[= ])|(?<=token[= ]))[^\s'\",]{8,500}"  # what a flag or a variable says
)


def name_event(event: Event, *, served: bool, ready: bool = False) -> Failure:
    """The failure that `event` is.

    `served` tells a first request from a later one; `ready` that it had come to requests, whatever it logs.
    """
    reached = later(event.phase, Phase.DEVICE) if event.rank <= ENGINE_RANK else event.phase
    reached = later(reached, Phase.FIRST_REQUEST) if ready else reached
    phase = event.frame_phase or (event.rule.phase if event.rule else None) or reached
    if phase in (Phase.FIRST_REQUEST, Phase.SERVING):
        phase = Phase.SERVING if served else Phase.FIRST_REQUEST
    rule = event.rule
    if rule is None:
        return _unknown(event, phase)
    sure = event.fatal or event.weight is not Weight.ROOT
    return Failure(
        kind=rule.kind,
        phase=phase,
        blame=rule.blame,
        why=without_secrets(fill(rule.why, event.values)),
        cure=without_secrets(fill(rule.cure, event.values)),
        rule=rule.id,
        root_line=_root_line(event),
        line_number=event.line_number or None,
        process=event.process or None,
        numbers={name: _safe(value) for name, value in event.numbers.items()},
        source=rule.source,
        confidence=rule.confidence * (1.0 if sure else _SURVIVED_FACTOR),
        frames=event.frames,
    )


def name_refusals(progress: Progress) -> Failure | None:
    """The failure of a server that answered hardly any completion and died of none; None when it answered."""
    bad = progress.refused + progress.failed
    if bad <= progress.answered or bad < _MIN_BAD_REQUESTS:
        return None
    requests = progress.answered + bad
    client = progress.refused >= progress.failed
    status = "refused as wrong (HTTP 4xx)" if client else "ended with an error of the server (HTTP 5xx)"
    return Failure(
        kind=FailureKind.CLIENT if client else FailureKind.UNKNOWN,
        phase=Phase.SERVING if progress.answered else Phase.FIRST_REQUEST,
        blame=Blame.USER if client else Blame.UNKNOWN,
        why=f"of {requests} completion requests {bad} were {status}, and the log does not say why",
        cure="look at the answer that a client gets: vLLM puts the reason there, not into its log",
        confidence=0.5,
    )


def without_secrets(text: str) -> str:
    """`text` with anything that looks like a token or a key replaced."""
    return _SECRET.sub("<secret>", text)


def _safe(value: Value) -> Value:
    return without_secrets(value) if isinstance(value, str) else value


def _root_line(event: Event) -> str | None:
    return without_secrets(event.line[:_MAX_ROOT_LINE]) or None


def _unknown(event: Event, phase: Phase) -> Failure:
    where = f" in {event.frames[-1]}" if event.frames else ""
    bare = ":" not in event.line and event.source_line
    what = f"{event.line} at `{event.source_line}`" if bare else event.message.replace("\n", " ")[:300]
    return Failure(
        kind=FailureKind.UNKNOWN,
        phase=phase,
        blame=Blame.UNKNOWN,
        why=without_secrets(f"no rule knows this error: {what}{where}"),
        cure="",
        root_line=_root_line(event),
        line_number=event.line_number,
        process=event.process or None,
        confidence=_UNKNOWN_CONFIDENCE,
        frames=event.frames,
    )
