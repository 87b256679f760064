"""Looks at a server's `/metrics`, between the points and never while one is measured."""

from collections import defaultdict
from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from autotune.domain.effective import ServerMetrics

_TIMEOUT_S = 5.0
"""A busy vLLM answers in well under 1 s; one that does not has other troubles."""
_OURS = "vllm:"


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
