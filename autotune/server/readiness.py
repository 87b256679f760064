"""Waits until a server answers, and makes sure that it is ours that answers."""

from collections.abc import Callable

import httpx

from autotune.domain.interrupt import Interrupt
from autotune.domain.server import Readiness, ServerMark
from autotune.server.ports import LOOPBACK, is_held_by
from autotune.server.processes import find

# vLLM answers /health in milliseconds; this bounds how long an interrupt waits for a server that accepts
# connections and then says nothing.
_ANSWER_TIMEOUT_S = 2.0


def wait_ready(
    mark: ServerMark, ended: Callable[[], bool], startup_s: float, interrupt: Interrupt
) -> Readiness:
    """How the wait ended; at most `startup_s` and one unanswered request later.

    `ended` says whether the first process is gone, and waits about 0.1 s before it says no. READY means that
    `/health` answered 200 and that every listener on the port is a process of this server.
    """
    deadline_s = interrupt.clock() + startup_s
    with httpx.Client(
        base_url=f"http://{LOOPBACK}:{mark.port}", trust_env=False, timeout=_ANSWER_TIMEOUT_S
    ) as client:
        while True:
            if ended():
                return Readiness.EXITED
            if verdict := _ask(client, mark):
                return verdict
            if interrupt.reason is not None:
                return Readiness.INTERRUPTED
            if interrupt.clock() >= deadline_s:
                return Readiness.TIMED_OUT


def _ask(client: httpx.Client, mark: ServerMark) -> Readiness | None:
    """READY or NOT_OURS, or None while that cannot be said."""
    try:
        healthy = client.get("/health").status_code == httpx.codes.OK
    except httpx.ConnectError:
        return None
    except httpx.TransportError:  # somebody accepts connections, whatever comes of them
        healthy = False
    held = is_held_by(mark.port, (process.pid for process in find(mark)))
    if held is None:
        return None
    if not held:
        return Readiness.NOT_OURS
    return Readiness.READY if healthy else None
