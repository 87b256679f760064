"""Points as a table for a narrow terminal, and as rows for a spreadsheet."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from builders import measured_point, point, record, request
from rich.cells import cell_len
from rich.console import Console, RenderableType

from autotune.domain.measurement import (
    Attainment,
    ClientLoad,
    Flag,
    FlagKind,
    Interval,
    Quantiles,
    ServerCounts,
)
from autotune.domain.objective import Objective
from autotune.domain.slo import parse_slos
from autotune.domain.trial import Measured
from autotune.report import tables, words
from autotune.report.points import points_block, requests_table
from autotune.report.spreadsheet import csv_text, point_rows, request_rows, requests_document


def sample(scale_s: float, n: int = 130) -> Quantiles:
    return Quantiles(
        n=n, p50=scale_s, p90=2 * scale_s, p95=3 * scale_s,
        intervals={"p50": Interval(low=0.95 * scale_s, high=1.05 * scale_s)},
    )  # fmt: skip


FULL = replace(
    point(256, 123_456.0),
    prompt_tok_s=1_234_567.0,
    window_s=45.0,
    done=99_999,
    failed=9_999,
    ttft_s=sample(98.7654),
    tpot_s=sample(0.0123),
    chunk_gap_s=sample(0.0111, n=999_999),
    e2e_s=sample(112.3),
    goodput_req_s=1.5,
    slo=Attainment(met=9, of=10, interval=Interval(low=0.596, high=0.982)),
    errors={"HTTP 500: no": 2},
    server=ServerCounts(out_tok_s=123_400.0, prefix_queries=100, prefix_hits=25),
    client=ClientLoad(cpu_share=0.12, loop_lag_p99_s=0.0004, run_queue_s=None, involuntary_switches=3),
    flags=(
        Flag(kind=FlagKind.PREEMPTED, text="3 requests were begun anew"),
        Flag(kind=FlagKind.STALLED, text="[red]all[/red] streams were silent for 2.1 s"),
    ),
    discarded=(Flag(kind=FlagKind.UNSTEADY, text="the halves of the window differ by 9 %"),),
)


def rendered(what: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(what)
    return console.export_text()


def test_the_largest_point_fits_80_columns_and_nothing_is_cut_off() -> None:
    text = rendered(points_block([point(1, 10.0), FULL], parse_slos(["ttft_p95=500ms"])))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for said in ("? 256 streams", "45.0 s", "99,999 done", "9,999 failed", "123,400 server", "98,765"):
        assert said in text
    assert "93,827-103,704" in text
    assert "p95 296,296" in text
    assert "999,999" in text


def test_what_a_reader_has_to_know_stands_below_with_doubts_first() -> None:
    lines = [
        line.strip() for line in rendered(points_block([FULL], parse_slos(["ttft_p95=500ms"]))).splitlines()
    ]
    below = lines[lines.index("At 256 streams") + 1 :]
    assert below == [
        "suspect: [red]all[/red] streams were silent for 2.1 s",
        "note: 3 requests were begun anew",
        "measured again: the halves of the window differ by 9 %",
        "failed 2 times: HTTP 500: no",
        "90.0 % (59.6 to 98.2) of 10 requests kept the limits of ttft_p95=500ms",
        "goodput 1.50 req/s",
        "the client used 12 % of a core, p99 0.40 ms late",
    ]


def test_what_was_not_measured_is_a_dash_and_no_number() -> None:
    nothing = replace(point(4, 10.0), ttft_s=None, tpot_s=None, e2e_s=Quantiles(n=3, p50=1.0))
    text = rendered(points_block([nothing]))
    assert re.search(r"TTFT +- +- +- +0 *\n", text)
    assert re.search(r"e2e +1,000 +- +- +3 *\n", text)
    assert "At 4 streams" not in text


def test_a_suspect_point_is_marked_in_the_list_and_in_the_ladder() -> None:
    doubtful = record(3, Measured(points=(point(1, 10.0), FULL)))
    assert "suspect at 256 streams: [red]all[/red] streams" in rendered(
        tables.trials([doubtful], [], set()), 120
    )
    ladder = rendered(tables.points(doubtful))
    assert "? 256" in ladder
    assert "? 1 " not in ladder
    assert max(cell_len(line) for line in ladder.splitlines()) <= 80


@pytest.mark.parametrize(
    ("objective", "value", "said", "short"),
    [
        ("out_tok_s@8", 1134.4, "1,134 tok/s", "1,134"),
        ("goodput_req_s@8", 1.5, "1.50 req/s", "1.50"),
        ("tpot_p50@8", 0.0052, "5.20 ms", "5.20 ms"),
        ("ttft_p95@8", 1.234, "1.23 s", "1.23 s"),
        ("slo_attainment@8", 0.975, "97.5 %", "97.5 %"),
    ],
)
def test_a_value_keeps_its_digits_and_has_a_unit_that_fits(
    objective: str, value: float, said: str, short: str
) -> None:
    assert words.quantity(value, Objective.parse(objective)) == said
    assert words.figure(value, Objective.parse(objective)) == short


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_point_is_one_flat_row_with_units_in_the_names() -> None:
    records = [
        record(2, Measured(points=(point(1, 10.0), FULL)), {"max_num_seqs": 8}),
        record(3, Measured(points=(point(1, 11.0),)), {"eager": True}),
    ]
    rows = rows_of(csv_text(point_rows(records)))
    assert [(row["trial"], row["streams"]) for row in rows] == [("2", "1"), ("2", "256"), ("3", "1")]
    full = rows[1]
    assert float(full["out_tok_s"]) == 123_456.0
    assert float(full["ttft_p50_s"]) == 98.7654
    assert float(full["ttft_p50_low_s"]) == pytest.approx(0.95 * 98.7654)
    assert (full["ttft_n"], full["ttft_p99_s"]) == ("130", "")
    assert float(full["slo_attainment"]) == 0.9
    assert float(full["server_prefix_hit_rate"]) == 0.25
    assert float(full["client_cpu_share"]) == 0.12
    assert (full["suspect"], full["errors"]) == ("True", "2 x HTTP 500: no")
    assert [row["set_max_num_seqs"] for row in rows] == ["8", "8", ""]
    assert [row["set_eager"] for row in rows] == ["", "", "True"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    evil = f"{start}HYPERLINK(1)"
    (row,) = rows_of(csv_text([{"a": evil, "b": -1.5, "c": 'say "a", b\nc'}]))
    assert row == {"a": "'" + evil.replace("\r", " "), "b": "-1.5", "c": 'say "a", b c'}
    assert csv_text([{evil: 1}]).lstrip('"').startswith("'")


def test_requests_come_with_their_times_and_in_json_with_their_gaps() -> None:
    odd = request(sequence=1, chunk_s=(), output_tokens=None, error="HTTP 500")
    points = (replace(measured_point(8, 50.0), requests=(request(), odd)),)
    first, second = rows_of(csv_text(request_rows(4, points)))
    assert (first["trial"], first["streams"], first["chunks"]) == ("4", "8", "3")
    assert (float(first["ttft_s"]), float(first["tpot_s"]), float(first["e2e_s"])) == (0.25, 0.125, 0.5)
    assert (second["ttft_s"], second["output_tokens"], second["error"]) == ("", "", "HTTP 500")
    kept = json.loads(json.dumps(requests_document(4, points)))["requests"]
    assert [r["chunk_gaps_s"] for r in kept] == [[0.25, 0.125, 0.125], []]
    text = rendered(requests_table(points))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "HTTP 500" in text
