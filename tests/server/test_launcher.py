"""What a launch is made of, what is kept of it, and what becomes of one that cannot be made."""

import os
import tempfile
from pathlib import Path

import pytest
from real_servers import Start, until

from autotune.domain.launch import ServerArgs
from autotune.domain.server import LaunchPlan
from autotune.errors import EnvironmentFault, UserError
from autotune.server import session
from autotune.server.launcher import LocalLauncher
from autotune.server.processes import look
from autotune.server.stopping import remove_scratch


def environ_of(pid: int | None) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def test_the_words(launcher: LocalLauncher, fake_vllm: tuple[str, ...]) -> None:
    plan = launcher.prepare(5, ServerArgs(flags=("--max-num-seqs", "8", "--port", "1")))
    port = str(plan.mark.port)
    assert plan.command == (*fake_vllm, "serve", "model", "--max-num-seqs", "8", "--port", "1")
    assert plan.argv == (*plan.command, "--host", "127.0.0.1", "--port", port)
    assert plan.url == f"http://127.0.0.1:{port}"
    assert plan.mark.pid is None
    assert Path(plan.mark.log_path).name == f"trial-5-{plan.mark.token[:8]}.log"
    assert Path(plan.mark.log_path).read_bytes() == b""
    assert os.listdir(plan.mark.tmp_dir) == []  # noqa: PTH208
    remove_scratch(plan.mark)


def test_the_plan_holds_what_autotune_adds_and_no_more(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    plan = launcher.prepare(0, ServerArgs(env={"VLLM_USE_X": "1", "PYTHONUNBUFFERED": "2"}))
    assert plan.env == {
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache" / "torchinductor"),
        "VLLM_USE_X": "1",
        "PYTHONUNBUFFERED": "2",
        "TMPDIR": plan.mark.tmp_dir,
        "AUTOTUNE_SERVER": plan.mark.token,
    }
    server = launcher.start(plan)
    until(server.read_log)
    environ = environ_of(server.mark.pid)
    server.stop(grace_s=0)
    assert environ["HF_TOKEN"] == "hf_secret"
    assert environ["DO_NOT_TRACK"] == "0"
    assert environ.items() >= plan.env.items()


def test_the_users_cache_is_used(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/var/cache/inductor")
    plan = launcher.prepare(0, ServerArgs())
    assert "TORCHINDUCTOR_CACHE_DIR" not in plan.env
    remove_scratch(plan.mark)


def test_a_retry_has_its_own_log(launcher: LocalLauncher) -> None:
    first, second = (launcher.prepare(4, ServerArgs()) for _ in range(2))
    assert first.mark.log_path != second.mark.log_path
    assert first.mark.token != second.mark.token
    assert first.mark.tmp_dir != second.mark.tmp_dir
    assert first.mark.port != second.mark.port
    remove_scratch(first.mark)
    remove_scratch(second.mark)


def test_a_socket_fits_into_the_scratch_directory(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    plan = launcher.prepare(0, ServerArgs())
    assert len(os.fsencode(plan.mark.tmp_dir)) + 1 + 36 <= 107
    remove_scratch(plan.mark)


def test_a_unix_socket_is_refused(launcher: LocalLauncher) -> None:
    with pytest.raises(UserError, match="--uds"):
        launcher.prepare(0, ServerArgs(flags=("--uds=/tmp/x",)))


def test_a_logs_directory_that_cannot_be(fake_vllm: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    launcher = LocalLauncher(fake_vllm, "m", tmp_path / "file" / "logs", cache_dir=tmp_path / "cache")
    with pytest.raises(EnvironmentFault, match="file/logs: cannot be written: Not a directory"):
        launcher.prepare(0, ServerArgs())


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), ("#!/bin/sh\n", "Permission denied"), ("", "Exec format error")],
)
def test_a_program_that_cannot_be_executed(tmp_path: Path, content: str | None, reason: str) -> None:
    program = tmp_path / "vllm"
    if content is not None:
        program.write_text(content)
        program.chmod(0o644 if content else 0o755)
    launcher = LocalLauncher((str(program),), "m", tmp_path / "logs", cache_dir=tmp_path / "cache")
    plan = launcher.prepare(0, ServerArgs())
    with pytest.raises(EnvironmentFault, match=f"vllm cannot be started: {reason}; check the vLLM command"):
        launcher.start(plan)
    assert not Path(plan.mark.tmp_dir).exists()


def test_the_mark_of_a_started_server(start: Start) -> None:
    server = start()
    first = look(server.mark.pid or 0)
    assert first is not None
    assert first.started_s == server.mark.pid_started_s
    assert first.session == first.group == first.pid
    assert os.getsid(0) != first.session


def test_the_fake_as_one_program(fake_vllm_program: Path, tmp_path: Path) -> None:
    launcher = LocalLauncher((str(fake_vllm_program),), "m", tmp_path / "logs", cache_dir=tmp_path / "cache")
    server = launcher.start(launcher.prepare(0, ServerArgs(flags=("--nope",))))
    until(lambda: server.exit_code is not None)
    assert server.exit_code == 2
    server.stop(grace_s=0)


# The log


def test_a_flood_is_cut_in_the_middle(start: Start) -> None:
    server = start("floods")
    text = server.read_log()
    written = Path(server.mark.log_path).stat().st_size
    assert written > 5_000_000
    assert len(text) < session.LOG_HEAD_BYTES + session.LOG_TAIL_BYTES + 100
    assert text.startswith("WARNING flood")
    assert "\n[autotune: " in text
    assert "Application startup complete." in text


def test_what_is_left_out_is_counted(start: Start, plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LOG_HEAD_BYTES", 4)
    monkeypatch.setattr(session, "LOG_TAIL_BYTES", 3)
    server = start(ready=False)
    log = Path(server.mark.log_path)
    server.stop(grace_s=0)
    log.write_bytes(b"abcdefg")
    assert server.read_log() == "abcdefg"
    log.write_bytes(b"abcdefgh")
    assert server.read_log() == "abcd\n[autotune: 1 bytes left out]\nfgh"
    log.write_bytes(b"a\xffb")
    assert server.read_log() == "a\ufffdb"
    log.unlink()
    assert server.read_log() == f"[autotune: {log.name} was removed]\n"
