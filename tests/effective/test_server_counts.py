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
from autotune.decide.server_counts import server_counts
from autotune.domain.effective import ServerMetrics
from autotune.domain.measurement import RequestRecord, RequestState, ServerCounts

NOTHING = ServerMetrics(totals={}, labels={})


def counts(
    after: ServerMetrics | None, requests: list[RequestRecord], before: ServerMetrics | None = NOTHING
) -> ServerCounts | None:
    return server_counts(before, after, BOOK.counters, requests)


def finished(tokens: int, streams: int = 4, requests_each: int = 25) -> list[RequestRecord]:
    """100 requests of `tokens` tokens, each in a chunk of its own."""
    chunks = tuple(1.0 + n / 100 for n in range(tokens))
    fields = {"chunk_s": chunks, "output_tokens": tokens, "wanted_output_tokens": tokens}
    return [request(stream, n, **fields) for stream in range(streams) for n in range(requests_each)]


def generated(tokens: float) -> ServerMetrics:
    return ServerMetrics(totals={"vllm:generation_tokens_total": tokens}, labels={})


def test_the_counters_of_a_recorded_server() -> None:
    """Taken from the file by eye; everything it counted since its start."""
    found = counts(recorded_metrics("v2_ngram"), [])
    assert found is not None
    assert replace(found, flags=()) == ServerCounts(
        generation_tokens=6536,
        prompt_tokens=20432,
        prefix_queries=20432,
        prefix_hits=0,
        preemptions=0,
        drafts=1328,
        draft_tokens=5104,
        accepted_tokens=5104,
    )
    assert found.acceptance_rate == 1.0
    assert found.mean_accepted_length == pytest.approx(1 + 5104 / 1328)
    assert found.prefix_hit_rate == 0.0


def test_only_the_difference_counts() -> None:
    found = counts(generated(900.0), [], before=generated(100.0))
    assert found is not None
    assert found.generation_tokens == 800
    assert found.preemptions is None
    assert found.acceptance_rate is None


def test_counters_that_began_anew_tell_nothing() -> None:
    assert counts(generated(10.0), [], before=generated(100.0)) is None


def test_without_metrics_there_are_no_counts() -> None:
    assert counts(None, finished(8)) is None
    assert counts(generated(8.0), finished(8), before=None) is None


def test_names_of_older_versions() -> None:
    totals = {"vllm:gpu_prefix_cache_queries_total": 1000.0, "vllm:gpu_prefix_cache_hits_total": 300.0}
    found = counts(ServerMetrics(totals=totals, labels={}), [])
    assert found is not None
    assert found.prefix_hit_rate == pytest.approx(0.3)
    assert any("30 % of the prompt tokens" in flag for flag in found.flags)


@pytest.mark.parametrize("served", [10_000, 10_199, 9_810])
def test_client_and_server_agree(served: int) -> None:
    found = counts(generated(served), finished(100))
    assert found is not None
    assert found.flags == ()


@pytest.mark.parametrize("served", [10_500, 9_500, 0])
def test_client_and_server_do_not_agree(served: int) -> None:
    found = counts(generated(served), finished(100))
    assert found is not None
    assert found.flags == (f"the server counted {served:,} output tokens, the client 10,000",)


def test_requests_that_were_cut_off_are_counted_by_their_chunks() -> None:
    """Half of all requests are cut half-way; a chunk carries two tokens, as with speculation."""
    whole = finished(100)
    chunks = tuple(1.0 + n / 100 for n in range(50))
    done = [replace(r, chunk_s=chunks) for r in whole]
    cut = [replace(r, chunk_s=chunks[:25], output_tokens=None, state=RequestState.CUT) for r in done]
    found = counts(generated(15_000), done + cut)
    assert found is not None
    assert found.flags == ()
    wrong = counts(generated(12_500), done + cut)
    assert wrong is not None
    assert wrong.flags


@given(served=st.integers(0, 10**7), tokens=st.integers(1, 40))
def test_a_failed_request_is_never_held_against_the_server(served: int, tokens: int) -> None:
    """Of a request that failed nobody knows how much of it the server had done."""
    failed = [replace(r, state=RequestState.FAILED) for r in finished(tokens)]
    found = counts(generated(min(served, tokens * len(failed))), failed)
    assert found is not None
    assert found.flags == ()


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
