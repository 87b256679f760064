"""From what was seen of a point to what is kept of it: its numbers, the server's own, and all that is odd."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.bench.guard import client_flag
from autotune.bench.metrics import read_looks
from autotune.bench.point import Taken
from autotune.decide.estimators import estimate
from autotune.decide.server_counts import server_counts
from autotune.decide.steadiness import stalled, unsteady
from autotune.domain.measurement import MeasuredPoint
from autotune.domain.workload import Workload


def measured_point(
    taken: Taken, workload: Workload, streams: int, counters: Mapping[str, tuple[str, ...]]
) -> MeasuredPoint:
    """The complete point. `counters` are the names of the server's metrics by field of `ServerCounts`."""
    point = estimate(taken.requests, taken.window, streams, workload.slos)
    tpot_s = point.tpot_s.p50 if point.tpot_s else None
    counted = server_counts(read_looks(taken.looks), counters, taken.requests, workload, streams)
    found = (
        stalled(taken.requests, taken.window),
        None if taken.broken_off else unsteady(taken.requests, taken.window),
        client_flag(taken.client, tpot_s) if taken.client else None,
        *(counted[1] if counted else ()),
    )
    return MeasuredPoint(
        point=replace(
            point,
            server=counted[0] if counted else None,
            client=taken.client,
            flags=tuple(flag for flag in found if flag is not None),
            discarded=taken.discarded,
        ),
        window=taken.window,
        requests=taken.requests,
        broken_off=taken.broken_off,
    )
