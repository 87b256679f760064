"""vLLM's own check on real vLLM for CPUs: what it refuses fails at a launch, and what it makes one is one."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotune.domain.launch import ServerArgs
from autotune.domain.machine import Device, VllmInstall
from autotune.domain.validation import Accepted, NotKnown, Refused, Validation
from autotune.host.validator import VllmValidator

ROOT = Path(__file__).parent.parent.parent
VLLM = Path(sys.executable).parent / "vllm"
INSTALL = VllmInstall(
    command=(str(VLLM),), python=sys.executable, version="0", torch_version=None, device=Device.CPU
)
LAUNCH_S = 180
"""Until a server that must not start counts as started; it ends after 8 s on two idle cores."""
AT_ONCE = 2
"""Launches: each has one busy thread, and needs 1 GB."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Words that vLLM does not take, of one kind."""

    kind: str
    words: tuple[str, ...] = ()
    model: str = "llama"
    env: dict[str, str] = field(default_factory=dict)


def spec(**settings: object) -> tuple[str, str]:
    return "--speculative-config", json.dumps(settings)


NGRAM = {"method": "ngram", "num_speculative_tokens": 3}
DFLASH = {"method": "dflash", "model": "dflash"}
HYBRID = "qwen35moe"

# One for each rule, of the parser, of one part of the configuration, or between two of them.
WRONG = [
    Wrong("flag", ("--nope", "1")),
    Wrong("number", ("--max-num-seqs", "many")),
    Wrong("json-key", ("--compilation-config", '{"modee": 3}')),
    Wrong("zero", ("--max-num-seqs", "0")),
    Wrong("share", ("--gpu-memory-utilization", "1.5")),
    Wrong("context-too-long", ("--max-model-len", "65536")),
    Wrong("tokens-below-seqs", ("--max-num-batched-tokens", "64", "--max-num-seqs", "128")),
    Wrong("tokens-below-context", ("--max-num-batched-tokens", "512", "--no-enable-chunked-prefill")),
    Wrong("long-prefill", ("--long-prefill-token-threshold", "90000")),
    Wrong("heads", ("--tensor-parallel-size", "3")),
    Wrong("offload-group", ("--offload-group-size", "2", "--offload-num-in-group", "4")),
    Wrong("attention", ("--attention-backend", "NOPE")),
    Wrong("quantization", ("--quantization", "awq"), model="qwen35moe-ct4-g64"),
    Wrong("variable", env={"VLLM_CPU_KVCACHE_SPACE": "much"}),
    Wrong("spec-key", spec(**NGRAM, bogus=1)),
    Wrong("spec-window", spec(**NGRAM, prompt_lookup_min=5, prompt_lookup_max=2)),
    Wrong("spec-without-tokens", spec(**DFLASH)),
    Wrong("spec-vocabulary", spec(method="draft_model", model="other-words", num_speculative_tokens=3)),
    Wrong("spec-method", spec(method="mtp", num_speculative_tokens=1)),
    Wrong("mamba-chunks", ("--enable-prefix-caching", "--no-enable-chunked-prefill"), model=HYBRID),
    Wrong("mamba-block", ("--no-enable-prefix-caching", "--mamba-block-size", "64"), model=HYBRID),
]
# A launch takes 11 s of a core. `make gate` launches these as well.
MORE = [
    Wrong("choice", ("--performance-mode", "fastest")),
    Wrong("json", ("--speculative-config", "{method: x}")),
    Wrong("json-value", ("--compilation-config", '{"mode": 9}')),
    Wrong("negative", ("--cpu-offload-gb", "-1")),
    Wrong("context-zero", ("--max-model-len", "0")),
    Wrong("active-above-seqs", ("--max-num-seqs", "4", "--max-num-active-seqs", "8")),
    Wrong("context-parallel", ("--decode-context-parallel-size", "2")),
    Wrong("experts", ("--enable-eplb",)),
    Wrong("loras", ("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "2")),
    Wrong("sizes-twice", ("--cudagraph-capture-sizes", "1", "-cc", '{"cudagraph_capture_sizes": [1]}')),
    Wrong("runner", env={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    Wrong("spec-async", ("--async-scheduling", *spec(**NGRAM))),
    Wrong("spec-slots", ("--max-num-batched-tokens", "2", *spec(**DFLASH, num_speculative_tokens=4))),
    Wrong("mamba-mode", ("--mamba-cache-mode", "all"), model=HYBRID),
]
ALL = [*WRONG, *MORE]
LAUNCHED = ALL if os.environ.get("AUTOTUNE_LAUNCH_ALL") else WRONG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory, with tiny models in it."""
    folder = tmp_path_factory.mktemp("validator")
    for kind in ("llama", HYBRID, "qwen35moe-ct4-g64", "dflash", "draft-llama"):
        words = [sys.executable, ROOT / "tools" / "make_tiny_model.py", folder / kind, "--kind", kind]
        subprocess.run(words, check=True)
    shutil.copytree(folder / "draft-llama", folder / "other-words")
    config = json.loads((folder / "other-words/config.json").read_text())
    (folder / "other-words/config.json").write_text(json.dumps({**config, "vocab_size": 1000}))
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def validators(folder: Path) -> Iterator[dict[str, VllmValidator]]:
    """One for each model."""
    validators = {model: VllmValidator(INSTALL, model) for model in sorted({wrong.model for wrong in ALL})}
    yield validators
    for validator in validators.values():
        validator.close()


def ask(validator: VllmValidator, *words: str, **env: str) -> Validation:
    return validator.validate(ServerArgs(flags=words, env=env))


@pytest.fixture(scope="module")
def refusals(validators: dict[str, VllmValidator]) -> dict[str, Refused]:
    """Of each kind what vLLM says of it."""
    answers = {wrong.kind: ask(validators[wrong.model], *wrong.words, **wrong.env) for wrong in ALL}
    known = {kind: answer for kind, answer in answers.items() if isinstance(answer, Refused)}
    assert known.keys() == answers.keys(), [kind for kind in answers if kind not in known]
    return known


def launch(wrong: Wrong) -> tuple[int | None, str]:
    """A real `vllm serve` with these words: its exit code, None when it would not end, and its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [VLLM, "serve", wrong.model, *wrong.words, "--host", "127.0.0.1", "--port", port]
    with subprocess.Popen(
        words,
        env={**os.environ, **wrong.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as server:
        try:
            log = server.communicate(timeout=LAUNCH_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            return None, server.communicate()[0]
    return server.returncode, log


def words_of(text: str) -> str:
    return " ".join(re.sub(r"0x[0-9a-f]+", "0x", text).split())


def test_whatever_is_refused_fails_at_a_launch_for_the_same_reason(refusals: dict[str, Refused]) -> None:
    assert len(LAUNCHED) > 20
    with ThreadPoolExecutor(AT_ONCE) as pool:
        launches = list(zip(LAUNCHED, pool.map(launch, LAUNCHED), strict=True))
    for kind, (code, log) in ((wrong.kind, ended) for wrong, ended in launches):
        message = refusals[kind].text.splitlines()[-1].removesuffix("...")
        assert code not in (0, None), f"{kind} was refused with {message!r}, and it starts"
        # vLLM's log has the name of a value on a line of its own.
        said = message.partition(": ")[2] or message
        assert words_of(said)[:80] in words_of(log), f"{kind}: {message!r} is not in\n{log[-2000:]}"


def test_the_reason_is_one_short_line(refusals: dict[str, Refused]) -> None:
    for refused in refusals.values():
        assert 10 < len(refused.text.splitlines()[-1]) < 300
        assert "input_value" not in refused.text


def accepted(validator: VllmValidator, *words: str, **env: str) -> dict[str, object]:
    answer = ask(validator, *words, **env)
    assert isinstance(answer, Accepted), (words, answer)
    return dict(answer.effective)


@pytest.mark.parametrize(
    ("model", "words", "made"),
    [
        (
            "llama",
            [],
            {"scheduler_config.max_num_seqs": 128, "scheduler_config.max_num_batched_tokens": 2048},
        ),
        ("llama", ["--max-num-batched-tokens", "1k"], {"scheduler_config.max_num_batched_tokens": 1000}),
        ("llama", ["--max-model-len", "2048"], {"model_config.max_model_len": 2048}),
        ("llama", ["--enforce-eager"], {"compilation_config.mode": "CompilationMode.NONE"}),
        ("llama", ["--performance-mode", "throughput"], {"scheduler_config.max_num_seqs": 256}),
        ("llama", ["--no-enable-prefix-caching"], {"cache_config.enable_prefix_caching": False}),
        ("llama", ["--kv-cache-dtype", "fp8"], {"cache_config.cache_dtype": "fp8"}),
        ("llama", ["--kv-cache-memory-bytes", "1G"], {"cache_config.kv_cache_memory_bytes": 2**30}),
        ("llama", ["--dtype", "float32"], {"model_config.dtype": "torch.float32"}),
        ("llama", [*spec(**NGRAM)], {"speculative_config.prompt_lookup_max": 5}),
        ("qwen35moe", [], {"cache_config.mamba_cache_mode": "align"}),
        ("qwen35moe", ["--no-enable-prefix-caching"], {"cache_config.mamba_cache_mode": "none"}),
        (
            "qwen35moe",
            ["--no-enable-prefix-caching", *spec(**DFLASH, num_speculative_tokens=4)],
            {"speculative_config.method": "dflash", "speculative_config.num_speculative_tokens": 4},
        ),
        ("qwen35moe-ct4-g64", [], {"model_config.quantization": "compressed-tensors"}),
    ],
)
def test_what_is_accepted_has_the_values_that_count(
    validators: dict[str, VllmValidator], model: str, words: list[str], made: dict[str, object]
) -> None:
    told = accepted(validators[model], *words)
    assert {name: told.get(name) for name in made} == made


TWINS = [
    ["--max-num-batched-tokens", "2048"],
    ["--max-num-seqs", "128"],
    ["--performance-mode", "balanced"],
    ["--enable-chunked-prefill"],
    ["--enable-prefix-caching"],
    ["--max_num_seqs=128"],
    ["--max-num-seqs", "4", "--max-num-seqs", "128"],
    ["--optimization-level", "2"],
    ["--cpu-offload-gb", "0"],
]
DIFFERENT = [
    ["--max-num-batched-tokens", "2049"],
    ["--max-num-seqs", "127"],
    ["--performance-mode", "throughput"],
    ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"],
    ["--disable-log-stats"],
    ["--enable-log-requests"],
    ["--uvicorn-log-level", "warning"],
    ["--gpu-memory-utilization", "0.9"],
    ["--block-size", "64"],
    ["--scheduling-policy", "priority"],
    ["--api-key", "k"],
    ["-O0"],
    ["--enforce-eager"],
    ["--compilation-config", '{"cudagraph_num_of_warmups": 1}'],
    ["--enable-lora"],
    ["--cpu-offload-gb", "1"],
    ["--seed", "1"],
]


def test_what_vllm_makes_one_is_one_and_whatever_differs_is_not(
    validators: dict[str, VllmValidator],
) -> None:
    plain = accepted(validators["llama"])
    no_twins = [words for words in TWINS if accepted(validators["llama"], *words) != plain]
    assert no_twins == []
    told = [plain, *(accepted(validators["llama"], *words) for words in DIFFERENT)]
    told.append(accepted(validators["llama"], VLLM_CPU_OMP_THREADS_BIND="nobind"))
    told.append(accepted(validators["llama"], OMP_NUM_THREADS="1"))
    assert all(one for one in told), "all could be read"
    assert len({frozenset((name, repr(value)) for name, value in one.items()) for one in told}) == len(told)


def test_the_order_of_the_questions_does_not_matter(folder: Path) -> None:
    questions = [
        ServerArgs(),
        ServerArgs(flags=("--enforce-eager",), env={"VLLM_CPU_OMP_THREADS_BIND": "nobind"}),
        ServerArgs(flags=spec(**NGRAM)),
        ServerArgs(flags=("--max-model-len", "65536")),
        ServerArgs(flags=("--max-model-len", "65536"), env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}),
        ServerArgs(flags=("--performance-mode", "throughput", "-O0")),
        ServerArgs(flags=("--tensor-parallel-size", "2")),
    ]
    with VllmValidator(INSTALL, "llama") as forwards, VllmValidator(INSTALL, "llama") as backwards:
        one = [forwards.validate(question) for question in questions]
        other = [backwards.validate(question) for question in reversed(questions)]
    assert one == other[::-1]


@pytest.mark.parametrize(
    "words",
    [
        spec(method="draft_model", model="not-there", num_speculative_tokens=3),
        ("--chat-template", "not-there.jinja"),
        ("--quantization", "awq"),  # its file may not be here yet
        ("--help",),
        ("--headless",),
    ],
)
def test_what_a_launch_may_see_otherwise_is_not_known(
    validators: dict[str, VllmValidator], words: Sequence[str]
) -> None:
    assert isinstance(ask(validators["llama"], *words), NotKnown)


def test_a_search_space_s_author_is_told_what_vllm_refuses(folder: Path) -> None:
    parameters = [
        f'{name} = {{ type = "int", low = 1, high = 999 }}'
        for name in ("max_num_seqs", "max_num_batched_tokens")
    ]
    (folder / "space.toml").write_text("\n".join(['schema = 1\nname = "s"\n[parameters]', *parameters]))
    words = [sys.executable, "-m", "autotune", "check", "space.toml", "--model", "llama", "--draws", "12"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = re.search(r"vLLM refuses (\d+) of 12 random configurations:", done.stdout)
    assert found, done.stdout
    assert 0 < int(found[1]) < 12
    assert f"{found[1]} x max_num_batched_tokens (" in done.stdout
    assert "as with: --max-num-seqs " in done.stdout


def test_a_model_that_is_not_here_is_not_known(folder: Path) -> None:
    with VllmValidator(INSTALL, "nobody/nothing") as validator:
        assert isinstance(ask(validator), NotKnown)
