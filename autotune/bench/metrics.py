"""Looks at a server's `/metrics`: one between the points, and several while one is measured.

A look during a point keeps the bytes and the moment alone. They are read when the point is over, because
reading them takes tens of milliseconds, in which no token would be timed.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import httpx
from prometheus_client.parser import text_string_to_metric_families

from autotune.decide.server_counts import Look
from autotune.domain.effective import ServerMetrics

_TIMEOUT_S = 5.0
"""A busy vLLM answers in well under 1 s; one that does not has other troubles."""
_EVERY_S = 1.0
_OURS = "vllm:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLook:
    """The answer as it came, on the clock of the point. The server counted at some moment in between."""

    asked_s: float
    answered_s: float
    text: bytes


@asynccontextmanager
async def looking(
    session: aiohttp.ClientSession, url: str, clock: Callable[[], float]
) -> AsyncIterator[list[RawLook]]:
    """Look at the begin of the block, about once a second within, and at its end.

    The list grows meanwhile. It stays empty for a server that does not answer the first look.
    """
    looks: list[RawLook] = []
    regular = asyncio.create_task(_look_on(session, url, clock, looks))
    try:
        yield looks
        answers = bool(looks) or not regular.done()
    finally:
        regular.cancel()
        await asyncio.wait({regular})
    if answers and (last := await _look(session, url, clock)):
        looks.append(last)


async def _look_on(
    session: aiohttp.ClientSession, url: str, clock: Callable[[], float], looks: list[RawLook]
) -> None:
    while look := await _look(session, url, clock):
        looks.append(look)
        await asyncio.sleep(_EVERY_S)


async def _look(session: aiohttp.ClientSession, url: str, clock: Callable[[], float]) -> RawLook | None:
    asked_s = clock()
    try:
        async with session.get(
            f"{url}/metrics", timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), allow_redirects=False
        ) as response:
            text = await response.read()
            answered_s = clock()
    except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
        return None
    if response.status != httpx.codes.OK:
        return None
    return RawLook(asked_s=asked_s, answered_s=answered_s, text=text)


def read_looks(raw: Sequence[RawLook]) -> tuple[Look, ...]:
    """What was seen at each of them; those that hold no metrics of vLLM are left out."""
    looks: list[Look] = []
    for look in raw:
        metrics = parse_metrics(look.text.decode(errors="replace"))
        if metrics is not None:
            middle_s = (look.asked_s + look.answered_s) / 2
            half_s = (look.answered_s - look.asked_s) / 2
            looks.append(Look(at_s=middle_s, unsure_s=half_s, metrics=metrics))
    return tuple(looks)


def read_metrics(url: str) -> ServerMetrics | None:
    """What the server at `url` counts now; None when it has no metrics, or none that can be read.

    Histograms and the moments at which counters were made are left out.
    """
    try:
        # Not the proxy of the environment: the server is on loopback.
        answer = httpx.get(f"{url}/metrics", timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return None
    return parse_metrics(answer.text) if answer.status_code == httpx.codes.OK else None


def parse_metrics(text: str) -> ServerMetrics | None:
    """The metrics of vLLM in `text`, the format of Prometheus; None when it is none or holds none."""
    totals: dict[str, float] = defaultdict(float)
    labels: dict[str, Mapping[str, str]] = {}
    try:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(_OURS):
                continue
            for sample in family.samples:
                if sample.name.endswith("_info"):
                    labels[sample.name] = dict(sample.labels)
                elif not sample.name.endswith(("_created", "_bucket", "_sum", "_count")):
                    totals[sample.name] += sample.value
    except (ValueError, KeyError, IndexError):  # the parser has no error of its own
        return None
    return ServerMetrics(totals=dict(totals), labels=labels) if totals or labels else None
