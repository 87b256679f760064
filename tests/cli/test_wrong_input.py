"""Wrong input: one clear sentence on stderr, the right exit code, no traceback, nothing left behind."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.store.connection import open_engine

SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "int", low = 1, high = 8 }
"""
SHORT_STUDY = """
schema = 1
[workload]
prompt_tokens = 16
output_tokens = 8
streams = [1]
prompts = 4
min_window_s = 0.2
max_window_s = 0.4
[limits]
stop_grace_s = 1
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def autotune(tmp_path: Path, fake_vllm_program: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`autotune WORDS` in an empty directory, with the fake vLLM for `run` and `check`."""

    def call(*words: str, vllm: str | None = None) -> subprocess.CompletedProcess[str]:
        more = ["--vllm", vllm or str(fake_vllm_program)] if words[0] in ("run", "check", "doctor") else []
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "400"}
        return subprocess.run(
            [sys.executable, "-m", "autotune", *words, *more],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
        )

    return call


def _one_sentence(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("autotune: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for part in said:
        assert part in lines[0]


def test_a_model_that_is_not_there(autotune: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    _one_sentence(autotune("run", "./no-such-model", "--budget", "1m"), 2, "./no-such-model")


def test_a_flag_this_vllm_does_not_know(
    autotune: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, model: Path
) -> None:
    (tmp_path / "bad.toml").write_text(SPACE.replace("max_num_seqs", "nope"))
    (tmp_path / "short.toml").write_text(SHORT_STUDY)
    words = ("run", str(model), "--study", "short.toml", "--space", "bad.toml", "--budget", "14s")
    done = autotune(*words)
    # The fake cannot be asked for its flags, so the first trial with it says so, and the study goes on.
    assert done.returncode == 0, done.stderr
    assert "bad_flag" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SPACE.replace("low = 1", "low = 9"), ("max_num_seqs", "low")),
        (SPACE.replace('"int"', '"integer"'), ("max_num_seqs.type", "integer")),
        (SPACE.replace("schema = 1", "schema = 99"), ("schema", "99")),
        ("schema = 1\n[parameters\n", ("space.toml", "line")),
    ],
)
def test_a_wrong_search_space(
    autotune: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    model: Path,
    content: str,
    said: tuple[str, ...],
) -> None:
    (tmp_path / "space.toml").write_text(content)
    for words in (("check", "space.toml"), ("run", str(model), "--space", "space.toml", "--budget", "1m")):
        _one_sentence(autotune(*words), 2, "space.toml", *said)
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "4 hours please"), ("--budget", "4 hours please")),
        (("--budget", "0s"), ("--budget",)),
        (("--budget", "1m", "--streams", "4,2"), ("streams",)),
        (("--budget", "1m", "--streams", "one"), ("--streams", "one")),
        (("--budget", "1m", "--objective", "speed@8"), ("speed@8", "out_tok_s")),
        (("--budget", "1m", "--objective", "out_tok_s@3"), ("out_tok_s@3", "streams")),
        (("--budget", "1m", "--ports", "9-8"), ("--ports", "9-8")),
        (("--budget", "1m", "--space", "no-such-space"), ("no-such-space", "cpu-quickstart")),
        (("--budget", "1m", "--study", "no-such-study"), ("no-such-study", "quickstart")),
        (("--budget", "1m", "--prompt-tokens", "0"), ("--prompt-tokens '0'", "must be at least 1")),
        (("--budget", "1m", "--output-tokens", "many"), ("--output-tokens 'many'", "256-1024")),
        (("--budget", "1m", "--rate", "0"), ("rate_per_stream", "above 0")),
        (("--budget", "1m", "--rate", "1", "--workload", "agent"), ("agent", "rate_per_stream", "turns")),
        (("--budget", "1m", "--workload", "heavy"), ("heavy", "there are agent, chat", ".jsonl")),
        (("--budget", "1m", "--workload", "none.jsonl"), ("none.jsonl", "cannot be read")),
    ],
)
def test_wrong_options(
    autotune: Callable[..., subprocess.CompletedProcess[str]],
    model: Path,
    words: tuple[str, ...],
    said: tuple[str, ...],
) -> None:
    _one_sentence(autotune("run", str(model), *words), 2, *said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("w.toml", "schema = 1\nprompt_tokens = 0", ("w.toml: prompt_tokens", "must be at least 1")),
        ("w.jsonl", '{"prompt": "a secret"}\n{"prompt": ["secret"]}', ("line 2", "`prompt` must be a text")),
    ],
)
def test_a_wrong_workload(
    autotune: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    model: Path,
    name: str,
    content: str,
    said: tuple[str, ...],
) -> None:
    (tmp_path / name).write_text(content)
    done = autotune("run", str(model), "--budget", "1m", "--workload", name)
    _one_sentence(done, 2, *said)
    assert "secret" not in done.stderr
    assert not (tmp_path / "studies").exists()


def test_a_vllm_that_is_not_there(
    autotune: Callable[..., subprocess.CompletedProcess[str]], model: Path, tmp_path: Path
) -> None:
    done = autotune("run", str(model), "--budget", "1m", vllm=str(tmp_path / "nothing"))
    _one_sentence(done, 2, "nothing")


def test_no_vllm_anywhere(tmp_path: Path, model: Path) -> None:
    """autotune's own Python without vLLM beside it, and none on PATH."""
    code = "import sys; sys.executable = '/nonexistent/python'; from autotune.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(model), "--budget", "1m"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "400"},
        capture_output=True,
        text=True,
    )
    _one_sentence(done, 3, "vLLM", "pip install")


def test_a_study_file_of_a_newer_autotune(
    autotune: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, model: Path
) -> None:
    open_engine(f"sqlite:///{tmp_path}/new.db", create=True)
    connection = sqlite3.connect(tmp_path / "new.db")
    connection.execute("INSERT INTO autotune_schema VALUES (999, '2030-01-01')")
    connection.commit()
    connection.close()
    for words in (("run", str(model), "--budget", "1m"), ("show",), ("best",)):
        _one_sentence(autotune(*words, "--db", "new.db"), 4, "999", "upgrade")


def test_a_place_that_cannot_be_written(
    autotune: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, model: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = autotune("run", str(model), "--budget", "1m", "--db", "file/s.db")
    _one_sentence(done, 4, "file")


def test_no_free_port(autotune: Callable[..., subprocess.CompletedProcess[str]], model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = autotune("run", str(model), "--budget", "1m", "--ports", f"{port}-{port}", "--db", "s.db")
    _one_sentence(done, 3, str(port))
    shown = json.loads(autotune("show", "--db", "s.db", "--json").stdout)
    assert [t["failure"]["kind"] for t in shown["trials"]] == ["environment"]


def test_reading_a_study_that_is_not_there(autotune: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    _one_sentence(autotune("show"), 2, "autotune run MODEL")
    _one_sentence(autotune("best", "--db", "none.db"), 4, "none.db")
