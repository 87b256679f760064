"""The points of a study with the raw requests behind them, and the points computed anew from those."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, insert, select, update

from autotune.decide.estimators import ESTIMATOR_VERSION, estimate
from autotune.domain.measurement import MeasuredPoint, Point, RequestRecord
from autotune.domain.slo import Slo
from autotune.store import codec
from autotune.store.connection import insert_row
from autotune.store.schema import point, request


def add_point(connection: Connection, number: int, measured: MeasuredPoint) -> None:
    """Keep a point of trial `number` and, in one bulk insert, its requests."""
    key = insert_row(connection, point, codec.point_columns(number, measured))
    rows = [codec.request_columns(key, r) for r in measured.requests]
    if rows:
        connection.execute(insert(request), rows)


def points_by_trial(connection: Connection, number: int | None = None) -> Mapping[int, tuple[Point, ...]]:
    """The points of trial `number`, or of all, by trial number and in rising stream counts."""
    found: dict[int, tuple[Point, ...]] = {}
    for row in _rows(connection, number):
        trial_number = row["trial_number"]
        found[trial_number] = (*found.get(trial_number, ()), codec.point_of(row))
    return found


def measured_points(connection: Connection, number: int) -> tuple[MeasuredPoint, ...]:
    """The points of trial `number` with their requests, in rising stream counts."""
    return tuple(_measured(connection, row) for row in _rows(connection, number))


def reestimate(connection: Connection, slos: Sequence[Slo]) -> int:
    """Compute every point of an older estimator version anew from its requests; returns how many there were.

    What was not computed from the requests stays: the server's counts, the client's load, flags. A point
    without requests stays as it is.
    """
    old = point.c.estimator_version < ESTIMATOR_VERSION
    rows = connection.execute(select(point).where(old)).mappings().all()
    renewed = 0
    for row in rows:
        requests = _requests(connection, row["id"])
        if not requests:
            continue
        kept, window = codec.point_of(row), (row["window_begin_s"], row["window_end_s"])
        fresh = replace(
            estimate(requests, window, kept.streams, slos),
            server=kept.server,
            client=kept.client,
            flags=kept.flags,
            discarded=kept.discarded,
        )
        columns = codec.estimated_columns(fresh)
        connection.execute(update(point).where(point.c.id == row["id"]).values(**columns))
        renewed += 1
    return renewed


def _rows(connection: Connection, number: int | None) -> Sequence[RowMapping]:
    query = select(point).order_by(point.c.streams, point.c.id)
    if number is not None:
        query = query.where(point.c.trial_number == number)
    return connection.execute(query).mappings().all()


def _measured(connection: Connection, row: RowMapping) -> MeasuredPoint:
    window = (row["window_begin_s"], row["window_end_s"])
    return MeasuredPoint(point=codec.point_of(row), window=window, requests=_requests(connection, row["id"]))


def _requests(connection: Connection, point_id: int) -> tuple[RequestRecord, ...]:
    """In the order they were kept."""
    query = select(request).where(request.c.point_id == point_id).order_by(request.c.id)
    return tuple(codec.request_of(row) for row in connection.execute(query).mappings())
