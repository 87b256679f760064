"""Judges servers by the rules that come with autotune: names failures, reads back what became of settings."""

from dataclasses import dataclass
from functools import partial

from autotune.bench.metrics import read_metrics
from autotune.decide.effective import EffectiveBook, effective
from autotune.decide.failures.classify import classify
from autotune.decide.failures.rulebook import Rules
from autotune.domain.effective import Effective, Observed, ServerMetrics
from autotune.domain.machine import Environment
from autotune.files.effective import VLLM_EFFECTIVE, read_effective
from autotune.files.rules import VLLM_RULES, read_rules
from autotune.tune.ports import Diagnose


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReadBack:
    """The `ReadBack` of the loop, for servers of one environment."""

    book: EffectiveBook
    rules: Rules
    environment: Environment

    def look(self, url: str) -> ServerMetrics | None:
        """Its metrics now; None when it has none, or does not answer."""
        return read_metrics(url)

    def effective(self, observed: Observed) -> Effective:
        """Facts, and the settings that are not what was asked for."""
        return effective(observed, self.book, self.rules, self.environment)


def judges_of(environment: Environment) -> tuple[Diagnose, ServerReadBack]:
    """What names failures and what reads servers of `environment` back, from the rule files read once."""
    rules = read_rules(VLLM_RULES)
    book = read_effective(VLLM_EFFECTIVE)
    return partial(classify, rules=rules), ServerReadBack(book=book, rules=rules, environment=environment)
