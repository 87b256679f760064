"""Reads servers back: their metrics over HTTP, their log by the facts and checks that come with autotune."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.bench.metrics import read_metrics
from autotune.decide.effective import EffectiveBook, effective
from autotune.decide.failures.rulebook import Rules
from autotune.decide.server_counts import server_counts
from autotune.domain.effective import Effective, Observed, ServerMetrics
from autotune.domain.machine import Environment
from autotune.domain.measurement import RequestRecord, ServerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReadBack:
    """The `ReadBack` of the loop, for servers of one environment."""

    book: EffectiveBook
    rules: Rules
    environment: Environment

    def look(self, url: str) -> ServerMetrics | None:
        """Its metrics now; None when it has none, or does not answer."""
        return read_metrics(url)

    def counts(
        self, before: ServerMetrics | None, after: ServerMetrics | None, requests: Sequence[RequestRecord]
    ) -> ServerCounts | None:
        """What it counted between two looks; None when one of them saw nothing."""
        return server_counts(before, after, self.book.counters, requests)

    def effective(self, observed: Observed) -> Effective:
        """Facts, and the settings that are not what was asked for."""
        return effective(observed, self.book, self.rules, self.environment)
