"""Between domain values and the columns that hold them."""

import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import TypeVar

import msgspec
from sqlalchemy import RowMapping

from autotune.decide.estimators import ESTIMATOR_VERSION
from autotune.domain.effective import Effective
from autotune.domain.failure import Failure
from autotune.domain.fill import Fill
from autotune.domain.imported import CandidateFlag, Form, Imported, ImportedCommand, NotUnderstood
from autotune.domain.machine import Environment
from autotune.domain.measurement import (
    MeasuredPoint,
    Point,
    RequestRecord,
    RequestState,
)
from autotune.domain.output import Output
from autotune.domain.server import ServerMark
from autotune.domain.space import Configuration
from autotune.domain.trial import (
    Abandoned,
    Failed,
    Interrupted,
    Interruption,
    Measured,
    Origin,
    Outcome,
    Step,
    TrialRecord,
)

T = TypeVar("T")

RUNNING = "running"

_POINT_JSON = (
    "ttft_s", "tpot_s", "e2e_s", "chunk_gap_s", "slo", "errors", "server", "client", "flags", "discarded",
)  # fmt: skip
"""The fields of a point that are kept as JSON."""


def to_json(value: object) -> object:
    """Plain dicts, lists and scalars, for a JSON column."""
    return msgspec.to_builtins(value)


def from_json(value: object, kind: type[T]) -> T:
    """The domain value a JSON column holds. Raises msgspec.ValidationError when it holds another."""
    return msgspec.convert(value, kind)


def imported_of(row: RowMapping) -> Imported | None:
    """The file that the study in a row of `autotune_study` was begun from.

    The values of its flags are any JSON, a type that names itself, which msgspec cannot convert to.
    """
    if row["imported"] is None:
        return None
    command = row["imported"]["command"]
    parts = {
        "form": Form(command["form"]),
        "secrets": tuple(command["secrets"]),
        "candidates": tuple(CandidateFlag(**each) for each in command["candidates"]),
        "not_understood": tuple(NotUnderstood(**each) for each in command["not_understood"]),
    }
    return Imported(command=ImportedCommand(**{**command, **parts}), text=row["imported"]["text"])


def environment_json(environment: Environment) -> object:
    """An environment without its list of flags, which the installed vLLM can be asked for at any time."""
    return to_json(replace(environment, vllm=replace(environment.vllm, flags=None)))


def utc(moment: datetime) -> datetime:
    """`moment` as it is stored: UTC without a zone, since SQLite keeps none."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def outcome_columns(outcome: Outcome) -> Mapping[str, object]:
    """The state of a trial and what belongs to it."""
    match outcome:
        case Measured():
            return {"state": "measured"}
        case Abandoned(why=why):
            return {"state": "abandoned", "abandoned": why}
        case Failed(failure=failure):
            return {"state": "failed", "failure": to_json(failure)}
        case Interrupted(reason=reason):
            return {"state": "interrupted", "interruption": reason.value}


def trial_record(row: RowMapping, points: tuple[Point, ...]) -> TrialRecord:
    """The trial that a row of `autotune_trial` and its points describe."""
    finished_at = row["finished_at"]
    return TrialRecord(
        number=row["number"],
        origin=Origin(row["origin"]),
        configuration=Configuration(values=row["configuration"]),
        argv=tuple(row["argv"]),
        env=row["env"],
        started_at=row["started_at"].replace(tzinfo=UTC),
        finished_at=finished_at.replace(tzinfo=UTC) if finished_at else None,
        step_s={Step(name): seconds for name, seconds in row["step_s"].items()},
        log_path=row["log_path"],
        outcome=_outcome(row, points),
        effective=None if row["effective"] is None else from_json(row["effective"], Effective),
        block=row["block"],
        outputs=from_json(row["outputs"], tuple[Output, ...]),
        fills=from_json(row["fills"], tuple[Fill, ...]),
    )


def _outcome(row: RowMapping, points: tuple[Point, ...]) -> Outcome | None:
    match row["state"]:
        case "measured":
            return Measured(points=points)
        case "abandoned":
            return Abandoned(why=row["abandoned"], points=points)
        case "failed":
            return Failed(failure=from_json(row["failure"], Failure), points=points)
        case "interrupted":
            return Interrupted(reason=Interruption(row["interruption"]), points=points)
        case _:
            return None


def mark_of(row: RowMapping) -> ServerMark | None:
    """How the trial's processes are found again; None for a trial that was never prepared."""
    return None if row["mark"] is None else from_json(row["mark"], ServerMark)


def point_columns(number: int, measured: MeasuredPoint) -> Mapping[str, object]:
    """The row of `autotune_point` for a point of trial `number`, estimated by this program."""
    begin_s, end_s = measured.window
    where = {"trial_number": number, "window_begin_s": begin_s, "window_end_s": end_s}
    return {**estimated_columns(measured.point), **where}


def estimated_columns(point: Point) -> dict[str, object]:
    """The columns of a point that estimators of this version have computed."""
    columns = {f.name: getattr(point, f.name) for f in fields(Point) if f.name != "window_s"}
    plain = {name: to_json(columns[name]) for name in _POINT_JSON}
    return {**columns, **plain, "estimator_version": ESTIMATOR_VERSION}


def point_of(row: RowMapping) -> Point:
    """The point that a row of `autotune_point` describes."""
    columns = {f.name: row[f.name] for f in fields(Point) if f.name != "window_s"}
    return from_json({**columns, "window_s": row["window_end_s"] - row["window_begin_s"]}, Point)


def request_columns(point_id: int, request: RequestRecord) -> Mapping[str, object]:
    """The row of `autotune_request`; chunk times become gaps."""
    columns = {f.name: getattr(request, f.name) for f in fields(RequestRecord)}
    del columns["chunk_s"]
    return {
        **columns,
        "point_id": point_id,
        "state": request.state.value,
        "gaps_us": pack_gaps(request.sent_s, request.chunk_s),
    }


def request_of(row: RowMapping) -> RequestRecord:
    """The request that a row of `autotune_request` describes, its chunk times to the microsecond."""
    columns = {f.name: row[f.name] for f in fields(RequestRecord) if f.name not in ("chunk_s", "state")}
    chunk_s = unpack_gaps(row["sent_s"], row["gaps_us"])
    return RequestRecord(**columns, chunk_s=chunk_s, state=RequestState(row["state"]))


def pack_gaps(sent_s: float, chunk_s: Iterable[float]) -> bytes:
    """Microseconds between chunks as 32-bit integers: 4 bytes a chunk, each chunk exact to 1 us."""
    ticks = [0, *(round((moment - sent_s) * 1e6) for moment in chunk_s)]
    gaps = array("I", (later - earlier for earlier, later in pairwise(ticks)))
    if sys.byteorder == "big":
        gaps.byteswap()
    return gaps.tobytes()


def unpack_gaps(sent_s: float, packed: bytes) -> tuple[float, ...]:
    """Chunk times again, on the clock of `sent_s`."""
    gaps = array("I", packed)
    if sys.byteorder == "big":
        gaps.byteswap()
    return tuple(sent_s + tick / 1e6 for tick in accumulate(gaps))
