"""`autotune bench` on the fake vLLM and on servers that are no vLLM."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from autotune.cli import app

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))

from sse_server import Script, SseServer

KEY = "sk-neverShownAnywhere0123"
QUICK = ("--prompt-tokens", "16", "--output-tokens", "8")
WORKLOAD = """
schema = 1
prompt_tokens = 16
output_tokens = 8
streams = [1, 2]
prompts = 4
min_window_s = 0.2
max_window_s = 0.4
"""


@pytest.fixture
def server() -> Iterator[SseServer]:
    with SseServer().running() as running:
        running.answer = lambda number: Script(ttft_s=0.004, tpot_s=0.002)
        yield running


@pytest.fixture(scope="module")
def fake(fake_vllm: tuple[str, ...]) -> Iterator[str]:
    """The URL of a fake vLLM that is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*fake_vllm, "serve", "org/model", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, start_new_session=True, **quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as client:
            assert client.get(f"{url}/v1/models").status_code == 200
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a short workload."""
    (tmp_path / "quick.toml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(*words: str) -> list[str]:
    return ["bench", *words, "--workload", "quick.toml"]


def call(*words: str, **variables: str) -> Result:
    """`autotune bench WORDS`, in this process."""
    found = CliRunner().invoke(app, words_of(*words), env={"OPENAI_API_KEY": None, **variables})
    assert isinstance(found.exception, SystemExit | None), found.exception
    return found


def one_sentence(done: Result, code: int, *said: str) -> None:
    assert done.exit_code == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("autotune: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for part in said:
        assert part in lines[0]


def points(done: Result) -> list[list[dict[str, object]]]:
    assert done.exit_code == 0, done.stderr
    ladders: list[list[dict[str, object]]] = json.loads(done.stdout)["ladders"]
    return ladders


# Against vLLM


def test_the_ladder_against_vllm(fake: str, folder: Path) -> None:
    done = call(fake)
    assert done.exit_code == 0, done.stderr
    assert f"org/model at {fake}/v1/completions, version 0.32.0" in done.stderr
    assert "1 stream: " in done.stderr
    assert "[1 of 2, about" in done.stderr
    assert "[2 of 2, about 0 s left]" in done.stderr
    assert "approximate" not in done.stdout + done.stderr
    # A `?` marks a point in doubt, as a busy machine makes it.
    assert re.findall(r"^ +(?:\? )?(\d+) +[\d.,]+ ", done.stdout, re.MULTILINE) == ["1", "2"]


def test_the_result_for_machines_is_the_saved_one_and_can_be_compared(fake: str, folder: Path) -> None:
    done = call(fake, "--json", "--save", "a.json", "--repeats", "2", "--streams", "1")
    ladders = points(done)
    assert [[p["streams"] for p in ladder] for ladder in ladders] == [[1], [1]]
    assert all(p["failed"] == 0 and p["done"] for ladder in ladders for p in ladder)  # type: ignore[truthy-bool]
    saved = json.loads((folder / "a.json").read_text())
    assert saved == json.loads(done.stdout)
    assert (saved["schema"], saved["model"], saved["server_version"]) == (1, "org/model", "0.32.0")
    assert (saved["url"], saved["host"]) == (fake, socket.gethostname())
    assert saved["dialect"] == {"endpoint": "completions", "chars_per_token": None, "extensions": True}
    assert "repeat 2, 1 stream" in done.stderr
    compared = CliRunner().invoke(app, ["compare", "a.json", "a.json", "--json"])
    assert {row["ratio"] for row in json.loads(compared.stdout)["rows"]} == {1.0}


def test_what_the_server_counted_agrees(fake: str, folder: Path) -> None:
    ((point,),) = points(call(fake, "--json", "--streams", "2"))
    server = point["server"]
    assert isinstance(server, dict)
    assert server["prefix_hits"] == 0
    flags = point["flags"]
    assert isinstance(flags, list)
    assert "prefix_hits" not in {flag["kind"] for flag in flags}
    # A window of a fraction of a second has few steps in it; the 2 % are for longer ones.
    assert server["out_tok_s"] == pytest.approx(point["out_tok_s"], rel=0.25)


def test_repeats_are_whole_ladders_and_have_intervals(fake: str, folder: Path) -> None:
    done = call(fake, "--repeats", "2")
    lines = [line for line in done.stderr.splitlines() if "repeat" in line]
    assert [line.split(":")[0].strip() for line in lines] == [
        "repeat 1, 1 stream", "repeat 1, 2 streams", "repeat 2, 1 stream", "repeat 2, 2 streams",
    ]  # fmt: skip
    assert "Means of 2 repeats with 95% intervals" in done.stdout


def test_other_options(fake: str, folder: Path) -> None:
    words = ("--json", "--streams", "1", "--output-tokens", "4", "--slo", "ttft_p95=2s", "--seed", "7")
    done = call(fake.removeprefix("http://") + "/v1/", *words, "--model", "org/model")
    ((point,),) = points(done)
    assert point["slo"] is not None
    assert point["goodput_req_s"]
    workload = json.loads(done.stdout)["workload"]
    assert (workload["seed"], workload["output_tokens"]["high"]) == (7, 4)


def test_vllm_by_its_chat_endpoint_is_said_to_be_approximate(server: SseServer, folder: Path) -> None:
    done = call(server.url, "--endpoint", "chat", "--streams", "1")
    assert done.exit_code == 0, done.stderr
    assert set(server.paths) == {"/v1/chat/completions"}
    assert "approximate" in done.stdout
    assert "approximate" in done.stderr
    assert all("ignore_eos" in body for body in server.requests)


# Against others


@pytest.mark.parametrize("endpoints", [{"completions"}, {"chat"}])
def test_a_server_that_is_no_vllm(server: SseServer, folder: Path, endpoints: set[str]) -> None:
    server.tokenize_status, server.endpoints, server.takes_extensions = 404, endpoints, False
    server.answer = lambda number: Script(ttft_s=0.004, tpot_s=0.002, stops_after=5)
    done = call(server.url, "--json", "--save", "a.json")
    (ladder,) = points(done)
    assert [point["failed"] for point in ladder] == [0, 0]
    for said in ("approximate", "the model may end an answer early", "A line of its own begins each prompt"):
        assert said in done.stderr
    prompts = [json.dumps(body.get("prompt", body.get("messages"))) for body in server.requests]
    assert len(set(prompts)) == len(prompts)
    tokens = [len(prompt.split()) for prompt in prompts[1:]]
    # 16 tokens were asked for; a template or a line of its own may add some.
    assert all(8 <= n <= 30 for n in tokens)
    assert "prompt" not in json.loads((folder / "a.json").read_text())["ladders"][0][0]["errors"]


def test_the_key_is_sent_and_shown_nowhere(server: SseServer, folder: Path) -> None:
    server.key = KEY
    done = call(server.url, "--save", "a.json", OPENAI_API_KEY=KEY)
    assert done.exit_code == 0, done.stderr
    named = call(server.url, "--api-key-env", "MY_KEY", "--json", MY_KEY=KEY, OPENAI_API_KEY="wrong")
    assert named.exit_code == 0, named.stderr
    for text in (done.stdout, done.stderr, named.stdout, named.stderr, (folder / "a.json").read_text()):
        assert KEY not in text


def test_a_key_that_the_server_repeats_is_shown_nowhere(server: SseServer, folder: Path) -> None:
    server.key = "another"
    server.cards = [{"id": "m"}]
    done = call(server.url, "--model", "m", OPENAI_API_KEY=KEY)
    one_sentence(done, 2, "refuses the API key (HTTP 401)")
    assert KEY not in done.stderr
    # One that tells it in the body of an error, when the ladder has begun.
    server.key = KEY
    body = json.dumps({"error": {"message": f"quota of {KEY} is used up"}})
    server.answer = lambda number: Script(status=429, body=body) if number > 12 else Script(tpot_s=0.002)
    done = call(server.url, "--save", "a.json", OPENAI_API_KEY=KEY)
    assert "quota of [hidden] is used up" in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_a_user_name_in_the_url_is_sent_and_shown_nowhere(server: SseServer, folder: Path) -> None:
    url = server.url.replace("http://", "http://me:s3cretWord@")
    done = call(url, "--save", "a.json", "--streams", "1", OPENAI_API_KEY="other")
    assert done.exit_code == 0, done.stderr
    assert "s3cretWord" not in done.stdout + done.stderr + (folder / "a.json").read_text()
    both = call(url, "--api-key-env", "MY_KEY", MY_KEY=KEY)
    one_sentence(both, 2, "either the user name in the URL or an API key")


# Trouble


def test_wrong_input_is_one_sentence(server: SseServer, folder: Path) -> None:
    server.models = ("a", "b")
    table = [
        ((server.url,), 2, "choose one with --model: a, b"),
        ((server.url, "--model", "c"), 2, "there is no model 'c'; the server has a, b"),
        (("ftp://host",), 2, "http:// or https://"),
        ((server.url, "--endpoint", "both"), 2, "choose auto, completions or chat"),
        ((server.url, "--api-key-env", "NOT_SET"), 2, "NOT_SET"),
        ((server.url, "--save", "a.txt"), 2, "ends in .json"),
        ((server.url, "--save", "none/a.json"), 2, "there is no folder none"),
        ((server.url, "--streams", "2,1"), 2, "streams"),
        ((server.url, "--timeout", "10"), 2, "--timeout"),
        ((server.url, "--prompt-tokens", "x"), 2, "--prompt-tokens"),
        ((server.url + "/nothing/here",), 2, "HTTP 404"),
    ]
    for words, code, said in table:
        one_sentence(call(*words), code, said)
    one_sentence(call(server.url, OPENAI_API_KEY="a\tb"), 2, "OPENAI_API_KEY")
    assert server.requests == []


def test_a_context_that_is_too_short_is_said_before_anything_is_sent(server: SseServer, folder: Path) -> None:
    server.cards = [{"id": "m", "max_model_len": 20}]
    one_sentence(call(server.url), 2, "needs 24 tokens of context", "20")
    assert server.requests == []


def test_a_server_that_is_not_there(server: SseServer, folder: Path) -> None:
    server.die()
    one_sentence(call(server.url), 3, "cannot connect", "is the server running?")


def test_a_server_without_completions(server: SseServer, folder: Path) -> None:
    server.endpoints = set()
    one_sentence(call(server.url), 2, "/v1/completions: HTTP 404", "/v1/chat/completions: HTTP 404")


def test_a_server_that_only_fails(server: SseServer, folder: Path) -> None:
    server.answer = lambda number: Script(status=500)
    one_sentence(call(server.url), 3, "HTTP 500: made to fail")


def test_a_server_that_fails_later_leaves_what_was_measured(server: SseServer, folder: Path) -> None:
    server.answer = lambda number: Script(status=500) if number > 60 else Script(ttft_s=0.01, tpot_s=0.004)
    done = call(server.url, "--save", "a.json", "--repeats", "9")
    one_sentence(done, 3, "HTTP 500: made to fail")
    assert "failed" in done.stdout
    assert json.loads((folder / "a.json").read_text())["ladders"]


def test_ctrl_c_keeps_and_prints_what_was_measured(fake: str, folder: Path) -> None:
    words = [sys.executable, "-m", "autotune", *words_of(fake, "--save", "a.json", "--repeats", "50")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=folder, **pipes) as running:
        assert running.stderr is not None
        assert running.stdout is not None
        for line in running.stderr:
            if "[3 of 100" in line:
                running.send_signal(signal.SIGINT)
                break
        rest, table = running.stderr.read(), running.stdout.read()
    assert running.returncode == 130, rest
    assert "Stopping: what was measured is kept" in rest
    assert "Traceback" not in rest
    assert "streams" in table
    ladders = json.loads((folder / "a.json").read_text())["ladders"]
    assert 3 <= sum(map(len, ladders)) <= 10


def test_ctrl_c_before_the_first_answer(server: SseServer, folder: Path) -> None:
    def answer(_: int) -> Script:
        os.kill(os.getpid(), signal.SIGINT)
        return Script(hang_after=0)

    server.answer = answer
    one_sentence(call(server.url), 130, "stopped")


def test_the_time_limit_ends_it_with_what_was_measured(fake: str, folder: Path) -> None:
    done = call(fake, "--repeats", "500", "--timeout", "3s")
    one_sentence(done, 3, "--timeout 3s: the time was over after")
    assert "streams" in done.stdout
