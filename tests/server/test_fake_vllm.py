"""The fake vLLM does what its docstring promises, since tests everywhere rely on it."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from real_servers import Start, until

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))

from vllm_fake.scenario import PRESETS, choose, parse_flags


def client_of(start: Start, scenario: object = "normal", *flags: str) -> httpx.Client:
    server = start(scenario, *flags)
    return httpx.Client(base_url=f"http://127.0.0.1:{server.mark.port}", trust_env=False, timeout=30)


def completion(**more: object) -> dict[str, object]:
    body = {"model": "model", "prompt": [1, 2, 3], "max_tokens": 5, "stream": True}
    return body | {"stream_options": {"include_usage": True}} | more


def data_lines(client: httpx.Client, body: dict[str, object]) -> Iterator[str]:
    with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line:
                assert line.startswith("data: ")
                yield line.removeprefix("data: ")


def test_a_stream(start: Start) -> None:
    with client_of(start) as client:
        *lines, done = data_lines(client, completion())
    assert done == "[DONE]"
    *chunks, last = map(json.loads, lines)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def test_the_other_endpoints(start: Start) -> None:
    with client_of(start, "normal", "--max-model-len", "64", "--served-model-name", "tiny") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
        tokens = client.post("/tokenize", json={"model": "tiny", "prompt": "one two"}).json()
        assert tokens["count"] == len(tokens["tokens"]) == 2
        assert client.get("/nothing").status_code == 404
        body = completion(model="tiny", prompt="one two", stream=False)
        whole = client.post("/v1/completions", json=body).json()
        assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
        assert whole["choices"][0]["text"] == " alpha beta gamma delta alpha"
        too_long = client.post("/v1/completions", json=body | {"max_tokens": 63})
        assert too_long.status_code == 400
        assert "maximum context length is 64 tokens" in too_long.json()["error"]["message"]
        assert client.post("/v1/completions", json=body | {"model": "x"}).status_code == 404
        metrics = client.get("/metrics").text
    assert 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 5.0' in metrics
    assert 'vllm:prompt_tokens_total{engine="0",model_name="tiny"} 2.0' in metrics


def test_at_most_max_num_seqs_run_at_a_time(start: Start) -> None:
    server = start({"tpot_s": 60}, "--max-num-seqs", "2")
    with httpx.Client(base_url=f"http://127.0.0.1:{server.mark.port}", trust_env=False) as client:
        first_token = threading.Semaphore(0)

        def ask() -> None:
            with httpx.Client(base_url=client.base_url, trust_env=False, timeout=60) as own:
                try:
                    for _ in data_lines(own, completion()):
                        first_token.release()
                except httpx.TransportError:
                    return

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            assert first_token.acquire(timeout=20)
        until(
            lambda: 'num_requests_waiting{engine="0",model_name="model"} 1.0' in client.get("/metrics").text
        )
        assert 'num_requests_running{engine="0",model_name="model"} 2.0' in client.get("/metrics").text
        server.stop(grace_s=0)
        for thread in threads:
            thread.join()


def test_the_same_prompt_hits_the_prefix_cache_unless_salted(start: Start) -> None:
    with client_of(start) as client:

        def hits(salt: str) -> str:
            list(data_lines(client, completion(prompt=list(range(40)), cache_salt=salt)))
            lines = client.get("/metrics").text.splitlines()
            return next(line.split()[-1] for line in lines if line.startswith("vllm:prefix_cache_hits"))

        assert [hits("a"), hits("b"), hits("a")] == ["0.0", "0.0", "32.0"]


def test_drafts_give_several_tokens_an_event(start: Start) -> None:
    spec = '{"method": "ngram", "num_speculative_tokens": 4}'
    with client_of(start, "normal", "--speculative-config", spec) as client:
        *chunks, _usage, _done = data_lines(client, completion(max_tokens=6))
        metrics = client.get("/metrics").text
    assert len(chunks) == 2
    assert 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="model"} 4.0' in metrics


def test_an_error_event(start: Start) -> None:
    with client_of(start, "error_event") as client:
        *chunks, error, done = data_lines(client, completion(max_tokens=50))
    assert len(chunks) == 3
    assert json.loads(error)["error"]["code"] == 500
    assert done == "[DONE]"


def test_a_truncated_stream(start: Start) -> None:
    with client_of(start, "truncated_stream") as client, pytest.raises(httpx.RemoteProtocolError):
        list(data_lines(client, completion(max_tokens=50)))


def test_http_500_always(start: Start) -> None:
    with client_of(start, "http_500") as client:
        codes = [client.post("/v1/completions", json=completion()).status_code for _ in range(3)]
        assert codes == [500, 500, 500]
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(("preset", "code"), [("dies_mid_load", 0), ("killed_mid_load", -9)])
def test_it_dies_mid_load(start: Start, preset: str, code: int) -> None:
    server = start({"preset": preset, "die_at_request": 3})
    url = f"http://127.0.0.1:{server.mark.port}/v1/completions"
    body = completion(stream=False)
    assert [httpx.post(url, json=body, trust_env=False).status_code for _ in range(2)] == [200, 200]
    if code == 0:
        assert httpx.post(url, json=body, trust_env=False).status_code == 500
    else:
        with pytest.raises(httpx.TransportError):
            httpx.post(url, json=body, trust_env=False)
    until(lambda: server.exit_code is not None)
    assert server.exit_code == code


def test_a_recorded_log(start: Start, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.txt"
    recorded.write_text("ValueError: as recorded\n")
    server = start({"recorded_log": str(recorded), "exit_code": 3}, ready=False)
    until(lambda: server.exit_code is not None)
    assert server.exit_code == 3
    assert server.read_log().endswith("ValueError: as recorded\n")


@pytest.mark.parametrize(
    ("condition", "flags", "holds"),
    [
        ({"max_num_seqs": ">64"}, [], True),
        ({"max_num_seqs": ">64"}, ["--max-num-seqs", "64"], False),
        ({"max_num_seqs": "<=64"}, ["--max-num-seqs=64"], True),
        ({"enforce_eager": True}, ["--enforce-eager"], True),
        ({"enable_prefix_caching": False}, ["--no-enable-prefix-caching"], True),
        ({"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8"], True),
        ({"kv_cache_dtype": "!=fp8"}, [], True),
        ({"speculative_config": None}, [], True),
        ({"speculative_config.k": ">2"}, ["--speculative-config", '{"k": 3}'], True),
        ({"cpu_offload_params": ["a", "b"]}, ["--cpu-offload-params", "a", "b", "--port", "1"], True),
        ({"env.OMP_NUM_THREADS": 2}, [], True),
        ({"env.OMP_NUM_THREADS": 2, "max_num_seqs": 1}, [], False),
    ],
)
def test_rules(condition: dict[str, object], flags: list[str], holds: bool) -> None:
    rules = [{"if": condition, "scenario": "slow"}, {"if": {}, "scenario": {"start_s": 7}}]
    environ = {"FAKE_VLLM_RULES": json.dumps(rules), "OMP_NUM_THREADS": "2"}
    scenario = choose(parse_flags(flags), environ)
    assert (scenario.ttft_s, scenario.start_s) == ((0.5, 0.05) if holds else (0.02, 7))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_read(preset: str) -> None:
    choose(parse_flags([]), {"FAKE_VLLM_SCENARIO": json.dumps(preset)})


@pytest.mark.parametrize("scenario", ["nonsense", {"no_such_setting": 1}])
def test_a_scenario_with_a_mistake_is_refused(start: Start, scenario: object) -> None:
    server = start(scenario, ready=False)
    until(lambda: server.exit_code is not None)
    assert server.exit_code == 64
    assert "no such scenario" in server.read_log()
