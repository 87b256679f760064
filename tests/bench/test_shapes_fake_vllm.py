"""Shared beginnings against the prefix cache of the fake vLLM, which counts the tokens that were in it."""

import pytest
from test_load_fake_vllm import counter, serving

from autotune.bench.load import LoadBench
from autotune.domain.interrupt import Interrupt
from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Lengths, Workload

BASE = {
    "prompt_tokens": Lengths(low=40, high=80),
    "output_tokens": Lengths(low=2, high=6),
    "prompts": 6,
    "min_window_s": 0.3,
    "max_window_s": 2.0,
}


@pytest.mark.parametrize(
    ("shape", "least", "most"),
    [
        ({}, 0.0, 0.0),
        # A prefix of 96 tokens before 40 to 80, found by all but the first of each round of 6.
        ({"shared_prefix_tokens": 96}, 0.3, 96 / 136),
        # Of two turns the second finds the first, of four the last three.
        ({"turns": 2}, 0.1, 0.5),
        ({"turns": 4}, 0.3, 0.9),
    ],
)
def test_hits_only_where_they_are_wanted(
    fake_vllm: tuple[str, ...], no_interrupt: Interrupt, shape: dict, least: float, most: float
) -> None:
    workload = Workload(**BASE, **shape)
    bench = LoadBench("m", workload)
    with serving(fake_vllm, {"tpot_s": 0.001, "ttft_s": 0.002}, "--enable-prefix-caching") as url:
        for streams in (1, 3):
            measured = bench.measure(url, streams, None, no_interrupt)
            assert measured is not None
            assert measured.point.failed == 0
        queries, hits = (counter(url, f"prefix_cache_{name}") for name in ("queries", "hits"))
    assert queries > 0
    assert least <= hits / queries <= most


def test_own_prompts_are_measured(fake_vllm: tuple[str, ...], no_interrupt: Interrupt) -> None:
    texts = tuple(
        PromptText(line=n, messages=({"role": "user", "content": f"question {n} " * 5},), output_tokens=3)
        for n in range(1, 7)
    )
    workload = Workload(**{**BASE, "prompt_tokens": Lengths(low=1, high=80)}, source="own.jsonl")
    notes: list[str] = []
    with serving(fake_vllm, {"tpot_s": 0.001}) as url:
        bench = LoadBench("m", workload, texts=texts, note=notes.append)
        assert bench.smoke(url, 20.0, no_interrupt) is None
        measured = bench.measure(url, 2, None, no_interrupt)
    assert measured is not None
    assert {r.wanted_output_tokens for r in measured.requests if not r.shortened} == {3}
    assert {r.prompt_index for r in measured.requests} <= set(range(6))
    assert notes == []
