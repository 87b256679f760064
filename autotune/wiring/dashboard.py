"""Serves optuna-dashboard on a copy of a study that keeps up with it, to this machine and to read only."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Lock
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from autotune.decide.ranking import Candidate
from autotune.decide.told import ToldState, told
from autotune.domain.trial import TrialRecord
from autotune.errors import EnvironmentFault
from autotune.report.dashboard import attributes, study_note, trial_note
from autotune.report.view import StudyView
from autotune.search.dashboard import ShownTrial, dashboard_app
from autotune.server.ports import LOOPBACK
from autotune.store.changes import change_counter
from autotune.store.connection import database_url
from autotune.store.evidence import EvidenceStore
from autotune.store.read_only import open_read_only
from autotune.wiring.view import read_quickly

_AGAIN_S = 2.0
"""A copy is not made again sooner: each page asks several times a second."""


class StudyDashboard:
    """The WSGI application: optuna-dashboard on the study as it is at the time of a request."""

    def __init__(self, store: EvidenceStore, count: Callable[[], int | None]) -> None:
        self._store = store
        self._count = count
        self._lock = Lock()
        self._seen, self._read_at_s = count(), time.monotonic()
        self._app = copy_app(read_quickly(store))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request to look; refuse one to change something, or one that came by another name.

        A page of another site can have its own name lead here, and would then read the study.
        """
        if environ.get("HTTP_HOST", "").rpartition(":")[0] not in (LOOPBACK, "localhost"):
            return _refused(start_response, HTTPStatus.FORBIDDEN, "ask for 127.0.0.1 or localhost")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            why = "this is a copy of the study, to look at: nothing can be changed in it"
            return _refused(start_response, HTTPStatus.METHOD_NOT_ALLOWED, why)
        return self._current()(environ, start_response)

    def _current(self) -> WSGIApplication:
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._read_at_s >= _AGAIN_S:
                count = self._count()
                if count is None or count != self._seen:
                    self._app = copy_app(read_quickly(self._store))
                self._seen, self._read_at_s = count, now_s
            return self._app


def copy_app(view: StudyView) -> WSGIApplication:
    """optuna-dashboard on a copy in which a configuration is complete once, at its first measured trial."""
    by_digest = {candidate.record.configuration.digest: candidate for candidate in view.candidates}
    trials = [_shown(view, record, by_digest.get(record.configuration.digest)) for record in view.records]
    return dashboard_app(view.info.name, view.info.objectives, view.space, trials, study_note(view))


def _shown(view: StudyView, record: TrialRecord, candidate: Candidate | None) -> ShownTrial:
    stands = candidate is not None and candidate.record.number == record.number
    state = _state(view, record)
    if state is ToldState.COMPLETE and not (stands and candidate and candidate.keeps_limits):
        state = ToldState.PRUNED
    return ShownTrial(
        state=state,
        values=candidate.values if candidate is not None and state is ToldState.COMPLETE else None,
        configuration=record.configuration,
        attributes=attributes(view, record, candidate),
        note=trial_note(view, record, candidate),
        started_at=record.started_at,
        finished_at=record.finished_at,
    )


def _state(view: StudyView, record: TrialRecord) -> ToldState | None:
    if record.outcome is None:
        return None
    return told(record.outcome, view.info.objectives, view.info.metric_limits).state


def _refused(start_response: StartResponse, status: HTTPStatus, why: str) -> Iterable[bytes]:
    body = f'{{"reason": "{why}"}}'.encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [body]


@contextmanager
def dashboard_server(database: str, port: int) -> Iterator[WSGIServer]:
    """A server that listens on `port` of the loopback, 0 for any free one; it answers while it is served.

    Raises StoreError, UserError when there is no study, EnvironmentFault when the port is taken or
    optuna-dashboard is not installed.
    """
    engine = open_read_only(database_url(database))
    with change_counter(engine) as count:
        app = StudyDashboard(EvidenceStore(engine), count)
        try:
            server = make_server(LOOPBACK, port, app, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            raise EnvironmentFault(
                f"port {port} cannot be listened on: {error.strerror}; choose another one with --port"
            ) from None
        with server:
            yield server
    engine.dispose()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection: browsers open some that they do not use."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """A line for each of the many requests of a page says nothing."""
