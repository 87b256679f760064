"""The page on measurement and the registry say the same."""

import re
from pathlib import Path

from autotune.domain.measurement import FlagKind
from autotune.domain.metric import METRICS
from autotune.domain.slo import PERCENTILES, Latency
from autotune.report.definitions import definitions, metric_table

PAGE = (Path(__file__).parents[2] / "docs" / "measurement.md").read_text()


def test_every_metric_is_defined_once() -> None:
    assert sorted(name for row in definitions() for name in row.names) == sorted(METRICS)


def test_the_table_in_the_page_is_that_of_the_registry() -> None:
    assert metric_table() in PAGE


def test_the_page_tells_every_flag_and_whether_it_puts_the_numbers_in_doubt() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", PAGE, re.MULTILINE))
    assert told == {kind.value: "yes" if kind.is_suspect else "no" for kind in FlagKind}


def test_the_page_tells_what_an_slo_can_be_about() -> None:
    part = PAGE.partition("### Service-level objectives")[2].partition("\n## ")[0]
    assert all(f"{latency}" in part for latency in Latency)
    assert all(f"p{percentile}" in part for percentile in PERCENTILES)
