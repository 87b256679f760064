"""What a hung server is doing, with and without py-spy."""

import os
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_servers import Start, patient, tree_of, until

from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.server import Readiness
from autotune.domain.trial import Interruption
from autotune.server.hang import find_py_spy, look_at, main_frames
from autotune.server.launcher import LocalLauncher
from autotune.server.processes import find
from autotune.server.session import LocalServer

DUMP = """Process 7: /venv/bin/python /venv/bin/vllm serve m --api-key sk-verysecret123
Python v3.12.3 (/usr/bin/python3.12)

Thread 8 (idle): "Thread-1 (poll)"
    wait (threading.py:355)
    monitor (vllm/v1/engine/utils.py:1400)
Thread 7 (active+gil): "MainThread"
    synchronize (torch/cuda/__init__.py:900)
    capture (vllm/v1/worker/gpu/cudagraph_utils.py:565)
    capture_model (vllm/v1/worker/gpu/model_runner.py:727)
    compile_or_warm_up_model (vllm/v1/worker/gpu_worker.py:784)
    run_method (vllm/utils/__init__.py:3)
    run_busy_loop (vllm/v1/engine/core.py:324)
    <module> (vllm:8)
"""


def test_the_frames_of_the_main_thread() -> None:
    assert main_frames(DUMP) == (
        "run_method (__init__.py:3)",
        "compile_or_warm_up_model (gpu_worker.py:784)",
        "capture_model (model_runner.py:727)",
        "capture (cudagraph_utils.py:565)",
        "synchronize (__init__.py:900)",
    )
    own = DUMP.replace("    synchronize (torch/cuda/__init__.py:900)\n", "")
    assert main_frames(own)[-1] == "capture (cudagraph_utils.py:565)"
    assert len(main_frames(own)) == 5
    foreign = 'Thread 7 (idle): "MainThread"\n    sleep (a.py:1)\n    <module> (b.py:2)\n'
    assert main_frames(foreign) == ("<module> (b.py:2)", "sleep (a.py:1)")
    unnamed = "Thread 0x7F (idle)\n    sleep (a.py:1)\n"
    assert main_frames(unnamed) == ("sleep (a.py:1)",)


@pytest.mark.parametrize("dump", ["", "Error: Permission Denied", 'Thread 7 (idle): "MainThread"\n'])
def test_no_frames(dump: str) -> None:
    assert main_frames(dump) == ()


@pytest.fixture
def no_py_spy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def put_py_spy(folder: Path, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.usefixtures("no_py_spy")
def test_where_py_spy_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = str(tmp_path / "venv" / "vllm")
    assert find_py_spy(vllm) is None
    beside = put_py_spy(tmp_path / "venv", "exit 0")
    assert find_py_spy(vllm) == str(beside)
    monkeypatch.setattr(sys, "executable", vllm)
    assert find_py_spy("/nowhere/vllm") == str(beside)
    on_path = put_py_spy(tmp_path, "exit 0")
    assert find_py_spy(vllm) == str(on_path)


@pytest.mark.usefixtures("no_py_spy")
def test_without_py_spy(start: Start) -> None:
    server = start("hangs_mid_stream")
    seen = server.aftermath(patient(), hung=True)
    assert {process.pid for process in seen.activity} == {process.pid for process in tree_of(server.mark)}
    assert [process.name[:6] for process in seen.activity] == ["VLLM::", "VLLM::"]
    assert {(process.state, process.busy, process.frames) for process in seen.activity} == {("S", False, ())}
    assert seen.stacks_path is None
    assert not Path(server.mark.log_path).with_suffix(".stacks.txt").exists()


def test_with_py_spy(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_py_spy(tmp_path / "bin", f"echo \"$@\" >> {tmp_path}/calls\ncat <<'END'\n{DUMP}END")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    server = start("grandchild_own_session")
    seen = server.aftermath(patient(), hung=True)
    assert [process.frames[-1] for process in seen.activity] == ["synchronize (__init__.py:900)"] * 3
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"dump --nonblocking --pid {process.pid}" for process in seen.activity]
    assert seen.activity[0].pid == server.mark.pid
    assert seen.stacks_path == str(Path(server.mark.log_path).with_suffix(".stacks.txt"))
    stacks = Path(seen.stacks_path).read_text()
    assert stacks.count('Thread 8 (idle): "Thread-1 (poll)"') == 3
    assert "verysecret" not in stacks


def test_a_py_spy_that_fails_or_hangs(start: Start, tmp_path: Path) -> None:
    server = start()
    stacks = tmp_path / "stacks.txt"
    failing = put_py_spy(tmp_path / "bin", "echo Permission Denied >&2; exit 1")
    (process,) = [p for p in find(server.mark) if p.pid == server.mark.pid]
    assert look_at([process], str(failing), stacks, patient(), pause=lambda _: None)[0].frames == ()
    hanging = put_py_spy(tmp_path / "bin", "exec sleep 60")
    soon = Interrupt(time.monotonic, time.monotonic() + 0.3)
    assert look_at([process], str(hanging), stacks, soon, pause=lambda _: None)[0].frames == ()
    missing = str(tmp_path / "none")
    assert look_at([process], missing, stacks, patient(), pause=lambda _: None)[0].frames == ()
    said = stacks.read_text()
    for words in ("Permission Denied", "did not answer in time", "cannot be started: No such file"):
        assert words in said
    interrupt = patient()
    interrupt.request(Interruption.USER)
    look_at([process], str(failing), stacks, interrupt, pause=lambda _: None)
    assert stacks.read_text() == said


def test_only_a_living_server_is_looked_into(start: Start) -> None:
    server = start("kv_too_small", ready=False)
    until(lambda: server.exit_code is not None)
    assert server.aftermath(patient(), hung=True).activity == ()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[LocalServer]:
    """A server that computes for ever."""
    program = tmp_path / "busy.py"
    program.write_text(
        textwrap.dedent(
            """
            import signal
            signal.alarm(60)
            print("begins", flush=True)
            while True: pass
            """
        )
    )
    command = (sys.executable, str(program))
    launcher = LocalLauncher(command, "m", tmp_path / "logs", cache_dir=tmp_path / "cache")
    server = launcher.start(launcher.prepare(0, ServerArgs()))
    until(lambda: "begins" in server.read_log())
    yield server
    server.stop(grace_s=0)


def test_busy_is_told_from_idle(busy: LocalServer) -> None:
    assert busy.wait_ready(0, patient()) is Readiness.TIMED_OUT
    (process,) = busy.aftermath(patient(), hung=True).activity
    assert process.cpu_s > 0.1  # of one second, on a machine where others compute too
    assert process.state == "R"
