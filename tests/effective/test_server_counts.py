"""Metrics over real HTTP, the differences between two looks, and what does not fit together."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from builders import request
from hypothesis import given
from hypothesis import strategies as st
from readings import BOOK, DATA, recorded_metrics

from autotune.bench.metrics import parse_metrics, read_metrics
from autotune.decide.server_counts import Look, server_counts
from autotune.domain.effective import ServerMetrics
from autotune.domain.measurement import FlagKind, RequestRecord, RequestState, ServerCounts
from autotune.domain.workload import Workload

NOTHING = ServerMetrics(totals={}, labels={})
PLAIN = Workload()
STREAMS = 4


def counts(
    after: ServerMetrics,
    requests: list[RequestRecord],
    before: ServerMetrics = NOTHING,
    *between: ServerMetrics,
    workload: Workload = PLAIN,
    unsure_s: float = 0.0,
) -> tuple[ServerCounts, dict[FlagKind, str]] | None:
    """Looks at 0 s and 10 s of the point, and some in between."""
    seen = [before, *between, after]
    looks = [
        Look(at_s=10.0 * n / (len(seen) - 1), unsure_s=unsure_s, metrics=metrics)
        for n, metrics in enumerate(seen)
    ]
    found = server_counts(looks, BOOK.counters, requests, workload, STREAMS)
    return found and (found[0], {flag.kind: flag.text for flag in found[1]})


def finished(tokens: int, requests_each: int = 25) -> list[RequestRecord]:
    """100 requests of `tokens` tokens, each in a chunk of its own, all between the looks."""
    chunks = tuple(1.0 + n / 100 for n in range(tokens))
    fields = {"chunk_s": chunks, "output_tokens": tokens, "wanted_output_tokens": tokens}
    return [request(stream, n, **fields) for stream in range(STREAMS) for n in range(requests_each)]


def generated(tokens: float, **gauges: float) -> ServerMetrics:
    totals = {f"vllm:num_requests_{name}": value for name, value in gauges.items()}
    return ServerMetrics(totals=totals | {"vllm:generation_tokens_total": tokens}, labels={})


def test_the_counters_of_a_recorded_server() -> None:
    """Taken from the file by eye; everything it counted since its start."""
    found = counts(recorded_metrics("v2_ngram"), [])
    assert found is not None
    server, _ = found
    assert server == ServerCounts(
        generation_tokens=6536,
        prompt_tokens=20432,
        prefix_queries=20432,
        prefix_hits=0,
        preemptions=0,
        drafts=1328,
        draft_tokens=5104,
        accepted_tokens=5104,
        out_tok_s=653.6,
        running=0.0,
        waiting=0.0,
    )
    assert server.acceptance_rate == 1.0
    assert server.mean_accepted_length == pytest.approx(1 + 5104 / 1328)
    assert server.prefix_hit_rate == 0.0


def test_only_the_difference_counts() -> None:
    found = counts(generated(900.0), [], generated(100.0), generated(500.0))
    assert found is not None
    assert found[0].generation_tokens == 800
    assert found[0].out_tok_s == 80.0
    assert found[0].preemptions is None
    assert found[0].acceptance_rate is None


def test_counters_that_began_anew_tell_nothing() -> None:
    assert counts(generated(10.0), [], before=generated(100.0)) is None


@pytest.mark.parametrize("looks", [(), (Look(at_s=1.0, unsure_s=0.0, metrics=NOTHING),)])
def test_with_fewer_than_two_looks_there_are_no_counts(looks: tuple[Look, ...]) -> None:
    assert server_counts(looks, BOOK.counters, finished(8), Workload(), STREAMS) is None


def test_names_of_older_versions() -> None:
    totals = {"vllm:gpu_prefix_cache_queries_total": 1000.0, "vllm:gpu_prefix_cache_hits_total": 300.0}
    metrics = ServerMetrics(totals=totals, labels={})
    found = counts(metrics, [])
    assert found is not None
    assert found[0].prefix_hit_rate == pytest.approx(0.3)
    assert "30 % of the prompt tokens" in found[1][FlagKind.PREFIX_HITS]
    wanted = counts(metrics, [], workload=Workload(turns=2))
    assert wanted is not None
    assert wanted[1] == {}


@pytest.mark.parametrize("served", [10_000, 10_199, 9_810])
def test_client_and_server_agree(served: int) -> None:
    found = counts(generated(served), finished(100))
    assert found is not None
    assert found[1] == {}


@pytest.mark.parametrize("served", [10_250, 9_750, 0])
def test_client_and_server_do_not_agree(served: int) -> None:
    found = counts(generated(served), finished(100))
    assert found is not None
    rate = f"{served / 10:,.1f} output tokens per second"
    text = f"the server counted {rate}, the client 1,000.0 in the same 10 s"
    assert found[1] == {FlagKind.MISCOUNTED: text}


def test_a_step_of_each_stream_may_be_on_its_way_at_both_looks() -> None:
    few = finished(4, 1)  # 16 tokens
    for served, is_odd in [(24, False), (8, False), (30, True), (6, True)]:
        found = counts(generated(served), few)
        assert found is not None
        assert bool(found[1]) is is_odd


def test_what_comes_while_a_slow_look_is_answered_is_not_held_against_anybody() -> None:
    assert (found := counts(generated(10_400), finished(100)))
    assert found[1]
    assert (found := counts(generated(10_400), finished(100), unsure_s=0.1))
    assert found[1] == {}


def test_only_what_comes_between_the_looks_is_compared() -> None:
    earlier = [replace(r, chunk_s=tuple(t - 20 for t in r.chunk_s)) for r in finished(100)]
    found = counts(generated(10_000), finished(100) + earlier)
    assert found is not None
    assert found[1] == {}


def test_requests_that_were_cut_off_are_counted_by_their_chunks() -> None:
    """Half of all requests are cut half-way; a chunk carries two tokens, as with speculation."""
    whole = finished(100)
    chunks = tuple(1.0 + n / 100 for n in range(50))
    done = [replace(r, chunk_s=chunks) for r in whole]
    cut = [replace(r, chunk_s=chunks[:25], output_tokens=None, state=RequestState.CUT) for r in done]
    found = counts(generated(15_000), done + cut)
    assert found is not None
    assert found[1] == {}
    wrong = counts(generated(12_500), done + cut)
    assert wrong is not None
    assert wrong[1]


@given(served=st.integers(0, 10**7), tokens=st.integers(1, 40))
def test_a_failed_request_is_never_held_against_the_server(served: int, tokens: int) -> None:
    """Of a request that failed nobody knows how much of it the server had done."""
    failed = [replace(r, state=RequestState.FAILED) for r in finished(tokens)]
    found = counts(generated(min(served, tokens * len(failed))), failed)
    assert found is not None
    assert found[1] == {}


@pytest.mark.parametrize(
    ("running", "waiting", "text"),
    [
        (2.0, 2.0, "the server worked on 2 requests at once for 4 streams; 2 waited in its queue"),
        (3.9, 0.1, None),
        (2.0, 0.0, None),  # they are between two requests: nothing waits
        (3.0, 0.2, None),
    ],
)
def test_streams_that_are_not_let_in(running: float, waiting: float, text: str | None) -> None:
    looks = [generated(0.0, running=running + d, waiting=waiting) for d in (-0.05, 0.05)]
    found = counts(looks[1], [], looks[0])
    assert found is not None
    assert (found[0].running, found[0].waiting) == (pytest.approx(running), pytest.approx(waiting))
    assert found[1].get(FlagKind.ADMISSION_BOUND) == text
    # The streams of an open loop say nothing of how many requests are under way.
    open_loop = counts(looks[1], [], looks[0], workload=Workload(rate_per_stream=1.0))
    assert open_loop is not None
    assert open_loop[1] == {}


@pytest.mark.parametrize(
    ("preemptions", "words"), [(0, None), (1, "a running request once"), (46, "a running request 46 times")]
)
def test_requests_thrown_out(preemptions: int, words: str | None) -> None:
    totals = {"vllm:num_preemptions_total": float(preemptions)}
    found = counts(ServerMetrics(totals=totals, labels={}), [])
    assert found is not None
    assert found[1].keys() == ({FlagKind.PREEMPTED} if words else set())
    assert (words or "") in found[1].get(FlagKind.PREEMPTED, "")


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_metrics_over_http() -> None:
    with answering(200, (DATA / "metrics" / "v5_blocks_preempt.txt").read_bytes()) as url:
        metrics = read_metrics(url)
    assert metrics is not None
    assert metrics.totals["vllm:num_preemptions_total"] == 46
    assert metrics.labels["vllm:cache_config_info"]["num_gpu_blocks_override"] == "1024"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"vllm:x_total 1\n"),
        (200, b""),
        (200, b"<html>{</html>"),
        (200, b"other_total 1\n"),
        (200, b"\xff\xfe{"),
    ],
)
def test_a_server_without_metrics(status: int, body: bytes) -> None:
    with answering(status, body) as url:
        assert read_metrics(url) is None


def test_nobody_answers() -> None:
    with answering(200, b"") as url:
        pass
    assert read_metrics(url) is None


def test_engines_are_added_up() -> None:
    lines = [f'vllm:generation_tokens_total{{engine="{n}"}} 10.0' for n in range(3)]
    metrics = parse_metrics("\n".join(lines) + "\n")
    assert metrics == ServerMetrics(totals={"vllm:generation_tokens_total": 30.0}, labels={})


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_metrics(text)
    parse_metrics("vllm:" + text)
