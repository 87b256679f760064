"""The ladder against a server that is already running: finds out what it is, then measures."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from autotune import __version__
from autotune.bench.address import Address, read_address
from autotune.bench.credentials import Credentials
from autotune.bench.load import LoadBench
from autotune.bench.probe import find_dialect
from autotune.bench.served import find_served
from autotune.domain.bench import BenchResult, Dialect, Endpoint
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.prompt_text import PromptText
from autotune.domain.trial import Interruption
from autotune.domain.workload import Workload
from autotune.errors import EnvironmentFault, UserError
from autotune.files.effective import VLLM_EFFECTIVE, read_effective

_FIRST_ANSWER_S = 120.0
"""How long the first completion may take: a cold server compiles at it."""
_LATER = (408, 429)
"""Of the 4xx, those that blame no request: it took too long, or there were too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What `autotune bench` was asked for; None where the server decides."""

    url: str
    workload: Workload
    texts: tuple[PromptText, ...] = ()
    """The prompts of a workload that has them from a file of the user."""
    model: str | None = None
    endpoint: Endpoint | None = None
    repeats: int = 1
    api_key: str | None = field(default=None, repr=False)
    is_default_key: bool = False
    """Nobody asked for it: it was found in the environment, and a user name in the URL goes before it."""


class BenchObserver(Protocol):
    """Watches a bench; must return quickly and never raise."""

    def found(self, result: BenchResult) -> None:
        """What the server is, and how it is spoken to."""

    def step(self, doing: str) -> None:
        """What is done now."""

    def point_measured(self, repeat: int, point: Point, took_s: float) -> None:
        """One stream count of the repeat of this number, from 0, is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEnd:
    """All that was measured, and why there is not more of it where it `stopped` or met a `failure`."""

    result: BenchResult
    stopped: Interruption | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBench:
    """A server that has answered in a dialect; `result` has no ladder yet."""

    request: BenchRequest
    result: BenchResult
    bench: LoadBench
    credentials: Credentials | None


def prepare_bench(request: BenchRequest, observer: BenchObserver, interrupt: Interrupt) -> PreparedBench:
    """Find the server's model and dialect.

    Raises UserError when URL, key, model or workload are not right for it, EnvironmentFault when it cannot
    be reached or does not work, KeyboardInterrupt when the user has asked to stop.
    """
    address, workload = read_address(request.url), request.workload
    credentials = _credentials(request, address)
    observer.step("looking at the server")
    served = find_served(address.url, request.model, credentials.headers if credentials else {})
    if served.context_tokens is not None and workload.context_tokens > served.context_tokens:
        raise UserError(
            f"{address.url}: the workload needs {workload.context_tokens:,} tokens of context, and "
            f"{served.model} has {served.context_tokens:,}; make --prompt-tokens or --output-tokens smaller"
        )
    observer.step("first request")
    result = BenchResult(
        url=address.url,
        host=address.host,
        model=served.model,
        workload=workload,
        dialect=_dialect(request, address, served.model, credentials, interrupt),
        began_at=datetime.now(UTC),
        autotune_version=__version__,
        server_version=served.version,
    )
    observer.found(result)
    bench = LoadBench(
        served.model,
        workload,
        texts=request.texts,
        note=observer.note,
        dialect=result.dialect,
        authorization=credentials.authorization if credentials else None,
        counters=read_effective(VLLM_EFFECTIVE).counters,
    )
    return PreparedBench(request=request, result=result, bench=bench, credentials=credentials)


def run_bench(prepared: PreparedBench, observer: BenchObserver, interrupt: Interrupt) -> BenchEnd:
    """Measure the ladder as often as asked for; whatever ends it, what was measured is in the result.

    It ends early where nothing comes back at a stream count: more streams would bring no more.
    """
    observer.step("warming up")
    if trouble := prepared.bench.warm_up(prepared.result.url, interrupt):
        observer.note(f"before the first point: {_hidden(trouble, prepared.credentials)}")
    ladders: list[list[Point]] = []
    failure: str | None = None
    for repeat in range(prepared.request.repeats):
        ladders.append([])
        for point, why in _ladder(prepared, repeat, observer, interrupt):
            ladders[-1].append(point)
            failure = failure or why
        if failure or interrupt.reason:
            break
    result = replace(prepared.result, ladders=tuple(tuple(points) for points in ladders if points))
    return BenchEnd(result=result, stopped=interrupt.reason, failure=failure)


def _credentials(request: BenchRequest, address: Address) -> Credentials | None:
    if request.api_key is None:
        return address.credentials
    if address.credentials is not None and not request.is_default_key:
        raise UserError(f"{address.url}: use either the user name in the URL or an API key, not both")
    return address.credentials or Credentials.of_key(request.api_key)


def _dialect(
    request: BenchRequest,
    address: Address,
    model: str,
    credentials: Credentials | None,
    interrupt: Interrupt,
) -> Dialect:
    found = find_dialect(
        address.url,
        model,
        request.workload,
        request.endpoint,
        credentials.authorization if credentials else None,
        _FIRST_ANSWER_S,
        interrupt,
    )
    if isinstance(found, Dialect):
        return found
    if interrupt.reason is Interruption.USER:
        raise KeyboardInterrupt
    why = _hidden(found.why, credentials)
    sentence = f"{address.url}: no completion came back from {model}: {why}"
    if found.status is not None and 400 <= found.status < 500 and found.status not in _LATER:
        raise UserError(sentence)
    raise EnvironmentFault(sentence)


def _ladder(
    prepared: PreparedBench, repeat: int, observer: BenchObserver, interrupt: Interrupt
) -> Iterator[tuple[Point, str | None]]:
    """The points of one repeat, up to one that ends it, with the reason for that."""
    expected_e2e_s: float | None = None
    for streams in prepared.request.workload.streams:
        observer.step(f"measuring, streams: {streams}")
        begun_s = interrupt.clock()
        measured = prepared.bench.measure(prepared.result.url, streams, expected_e2e_s, interrupt)
        if measured is None:
            return
        point = _without_secrets(measured.point, prepared.credentials)
        observer.point_measured(repeat, point, interrupt.clock() - begun_s)
        failure = _failure(measured, prepared.credentials)
        yield point, failure
        if failure:
            return
        expected_e2e_s = point.total_s


def _failure(measured: MeasuredPoint, credentials: Credentials | None) -> str | None:
    """Why there is nothing to be told of a point, or no use in going on after it; None where there is."""
    point = measured.point
    if point.out_tok_s == 0:
        why = max(point.errors, key=lambda error: point.errors[error], default="no request finished")
        return f"nothing came back at {point.streams} streams: {_hidden(why, credentials)}"
    if measured.broken_off is None:
        return None
    return f"broken off at {point.streams} streams: {_hidden(measured.broken_off, credentials)}"


def _without_secrets(point: Point, credentials: Credentials | None) -> Point:
    errors: Counter[str] = Counter()
    for error, count in point.errors.items():
        errors[_hidden(error, credentials)] += count
    return replace(point, errors=dict(errors))


def _hidden(text: str, credentials: Credentials | None) -> str:
    """What a server said, without the key that it may repeat."""
    return text if credentials is None else credentials.hidden(text)
