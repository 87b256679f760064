"""What the processes of a hung server are doing: processor time, where they sleep, and their stacks.

The stacks need py-spy, which is used when it is there: on PATH, or installed beside vLLM or autotune.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.decide.failures.naming import without_secrets
from autotune.domain.aftermath import ProcessActivity
from autotune.domain.interrupt import Interrupt
from autotune.server.processes import Process, is_resource_tracker, look

_WATCHED_S = 1.0
_MAX_PROCESSES = 16
"""Of a server with more workers than this the others do the same."""
_MAX_STACKS = 3
"""API server, engine, first worker."""
_PY_SPY_TIMEOUT_S = 10.0
_MAX_FRAMES = 5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_THREAD = re.compile(r"Thread \S+ \([^)]*\)(?:: \"(?P<name>.*)\")?$")
_FRAME = re.compile(r"    (?P<function>.{1,200}) \((?P<file>[^()]{1,500}):(?P<line>\d{1,9})\)$")


def find_py_spy(command: str) -> str | None:
    """The program py-spy: on PATH, beside `command` (vLLM's) or beside autotune's own Python."""
    beside = (str(Path(program).parent) for program in (shutil.which(command) or command, sys.executable))
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *beside))
    return shutil.which("py-spy", path=path)


def look_at(
    processes: Sequence[Process],
    py_spy: str | None,
    stacks_path: Path,
    interrupt: Interrupt,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[ProcessActivity, ...]:
    """What each process is doing, the first started first; the stacks are appended to `stacks_path`.

    Takes a second, and at most 10 s more for each of three stacks; less when interrupted.
    """
    # The engine waits for workers and the API server for the engine, so the cause is mostly in the last one.
    chosen = sorted(processes, key=lambda p: (p.started_s, p.pid))
    chosen = [process for process in chosen if not is_resource_tracker(process)][:_MAX_PROCESSES]
    before_s = [_cpu_s(process.pid) for process in chosen]
    pause(_WATCHED_S)
    cpu_s = [max(0.0, _cpu_s(process.pid) - b) for process, b in zip(chosen, before_s, strict=True)]
    seen: list[ProcessActivity] = []
    for at, (process, used_s) in enumerate(zip(chosen, cpu_s, strict=True)):
        if look(process.pid) is None:
            continue
        frames: tuple[str, ...] = ()
        if py_spy and at < _MAX_STACKS and not interrupt.reason:
            frames = main_frames(_dump(py_spy, process.pid, stacks_path, interrupt))
        seen.append(_activity(process, used_s, frames))
    return tuple(seen)


def main_frames(dump: str) -> tuple[str, ...]:
    """Of the main thread in a dump of py-spy: up to five functions of vLLM and, last, the innermost of all.

    Without a function of vLLM the innermost five.
    """
    threads: list[tuple[str | None, list[tuple[str, str]]]] = []
    for line in dump.splitlines():
        if thread := _THREAD.match(line):
            threads.append((thread["name"], []))
        elif threads and (frame := _FRAME.match(line)):
            where = f"{frame['function']} ({Path(frame['file']).name}:{frame['line']})"
            threads[-1][1].append((frame["file"], where))
    named = [frames for name, frames in threads if name == "MainThread"]
    stack = next(iter(named or (frames for _, frames in threads)), [])
    if not stack:
        return ()
    ours = [where for file, where in stack if "vllm/" in file]  # as py-spy shortens paths
    if not ours:
        return tuple(where for _, where in reversed(stack[:_MAX_FRAMES]))
    innermost = stack[0][1]
    if ours[0] == innermost:
        return tuple(reversed(ours[:_MAX_FRAMES]))
    return (*reversed(ours[: _MAX_FRAMES - 1]), innermost)


def _dump(py_spy: str, pid: int, path: Path, interrupt: Interrupt) -> str:
    """The stacks of all threads, also appended to the file; empty when py-spy could not say."""
    # Non-blocking, because to stop a process that a driver holds can take for ever.
    words = [py_spy, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=min(_PY_SPY_TIMEOUT_S, interrupt.left_s),
        )
        text = done.stdout.decode(errors="replace")
        said = text if done.returncode == 0 else text + done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        text, said = "", "py-spy did not answer in time"
    except OSError as error:
        text, said = "", f"py-spy cannot be started: {error.strerror}"
    with path.open("a") as file:
        file.write(f"--- py-spy of process {pid}\n{without_secrets(said.strip())}\n\n")
    return text


def _activity(process: Process, cpu_s: float, frames: tuple[str, ...]) -> ProcessActivity:
    waits_in = _read(process.pid, "wchan")
    stat = _read(process.pid, "stat")
    return ProcessActivity(
        pid=process.pid,
        name=_name(process.pid),
        state=stat[stat.rindex(")") + 2 :][:1] if stat else "?",
        cpu_s=cpu_s,
        watched_s=_WATCHED_S,
        waits_in=None if waits_in in ("", "0") else waits_in,
        frames=frames,
    )


def _name(pid: int) -> str:
    """The title that vLLM gives its processes, `VLLM::EngineCore`; else the kernel's 15 letters of it."""
    title = _read(pid, "cmdline").partition("\0")[0].strip()
    return title if title.startswith("VLLM::") else _read(pid, "comm") or str(pid)


def _cpu_s(pid: int) -> float:
    """Processor time that all threads have used so far; 0 when the process is gone."""
    stat = _read(pid, "stat")
    if not stat:
        return 0.0
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # utime and stime of proc(5)


def _read(pid: int, name: str) -> str:
    try:
        return (Path("/proc") / str(pid) / name).read_text(errors="replace").strip()
    except OSError:  # gone, or not shown to this user
        return ""
