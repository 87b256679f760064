"""A study on a user's own prompts: what they say is kept nowhere, and the study knows them again."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

SECRET = "xylophone-42-marker"
SPACE = """
schema = 1
[parameters]
max_num_seqs = { type = "int", low = 1, high = 8 }
"""
STUDY = """
schema = 1
search_space = "space.toml"
[limits]
startup_s = 20
stop_grace_s = 1
"""
WORKLOAD = """
schema = 1
source = "own.jsonl"
prompt_tokens = { max = 40 }
streams = [2]
min_window_s = 0.2
max_window_s = 0.4
"""


def lines(*more: object) -> str:
    short = {"messages": [{"role": "user", "content": f"{SECRET} one"}], "max_tokens": 4}
    answered = {
        "conversations": [{"from": "human", "value": f"{SECRET} two"}, {"from": "gpt", "value": SECRET}]
    }
    too_long = {"prompt": f"{SECRET} " * 100, "max_tokens": 4}
    return "\n".join(json.dumps(line) for line in (short, answered, too_long, *more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "w.toml").write_text(WORKLOAD)
    (tmp_path / "own.jsonl").write_text(lines())
    return tmp_path


def run(folder: Path, vllm: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("run", "model", "--study", "study.toml", "--workload", "w.toml", "--vllm", str(vllm), *more)
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "400"}
    return subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )


def traces(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files but the prompts themselves, the cache directory included."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".jsonl":
            yield path, path.read_bytes()


def test_own_prompts_are_measured_and_never_kept(folder: Path, fake_vllm_program: Path) -> None:
    done = run(folder, fake_vllm_program, "--budget", "14s")
    assert done.returncode == 0, done.stderr
    assert "1 of 3 lines of own.jsonl are left out: 1 for a prompt that is not 1 to 40" in done.stderr
    database = folder / "studies/study.db"
    with closing(connect(database)) as connection:
        rows = connection.execute(
            "SELECT DISTINCT prompt_index, wanted_output_tokens FROM autotune_request WHERE state = 'done'"
        ).fetchall()
    assert rows
    assert {index for index, _wanted in rows} <= {0, 1}
    assert SECRET not in done.stderr + done.stdout
    kept = dict(traces(folder))
    assert database in kept
    assert any(path.suffix == ".log" for path in kept)
    for path, content in kept.items():
        assert SECRET.encode() not in content, path

    (folder / "moved.jsonl").write_text(lines())
    (folder / "w.toml").write_text(WORKLOAD.replace("own", "moved"))
    (folder / "own.jsonl").unlink()
    moved = run(folder, fake_vllm_program, "--budget", "6s")
    assert moved.returncode == 0, moved.stderr
    (folder / "moved.jsonl").write_text(lines({"prompt": "another"}))
    changed = run(folder, fake_vllm_program, "--budget", "6s")
    assert changed.returncode == 2
    assert "begun with a workload whose source_digest is" in changed.stderr
