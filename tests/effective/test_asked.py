"""What a command line asks for, by the names of vLLM's settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.asked import asked, cpu_ids
from autotune.domain.launch import flag_words
from autotune.domain.space import Value


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["vllm", "serve", "/models/m", "--max-num-seqs", "8"], {"max_num_seqs": 8}),
        (["--max-num-seqs=8", "--max-num-seqs", "16"], {"max_num_seqs": 16}),
        (["--gpu-memory-utilization", "0.9"], {"gpu_memory_utilization": 0.9}),
        (["--device-memory-utilization", ".5"], {"gpu_memory_utilization": 0.5}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--enforce-eager", "-tp", "2"], {"enforce_eager": True}),
        (["--max-model-len", "-1"], {"max_model_len": -1}),
        (["--max-model-len", "4k"], {"max_model_len": 4000}),
        (["--max-model-len", "4K"], {"max_model_len": 4096}),
        (["--max-model-len", "1.5k"], {"max_model_len": 1500}),
        (["--cudagraph-capture-sizes", "1", "2", "4"], {"cudagraph_capture_sizes": "1 2 4"}),
        (["--dtype", "half"], {"dtype": "half"}),
        (["--speculative-config.method", "ngram"], {"speculative_config_method": "ngram"}),
        (
            ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3,"x":[1]}'],
            {
                "speculative_config": '{"method":"ngram","num_speculative_tokens":3,"x":[1]}',
                "speculative_config_method": "ngram",
                "speculative_config_num_speculative_tokens": 3,
            },
        ),
        (["--speculative-config", "{broken"], {"speculative_config": "{broken"}),
    ],
)
def test_the_words_of_a_command_line(argv: list[str], expected: dict[str, Value]) -> None:
    found = asked(argv, {})
    assert {name: value for name, value in found.items() if not name.startswith("_")} == expected


def test_variables_keep_their_names() -> None:
    assert asked([], {"OMP_NUM_THREADS": "8", "X": "auto"}) == {"OMP_NUM_THREADS": 8, "X": "auto"}


@given(value=st.one_of(st.booleans(), st.integers(-(10**12), 10**12), st.floats(0.001, 1000.0)))
def test_what_was_written_is_read_back(value: Value) -> None:
    assert asked(flag_words("--a-flag", value), {}) == {"a_flag": value}


@pytest.mark.parametrize(
    ("text", "ids"),
    [("9", {9}), ("0-2,7", {0, 1, 2, 7}), ("0,1|2,3", {0, 1, 2, 3}), ("auto", set()), ("nobind", set())],
)
def test_lists_of_cpus(text: str, ids: set[int]) -> None:
    assert cpu_ids(text) == ids
