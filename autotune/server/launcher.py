"""Prepares and spawns trial servers on this machine, and ends those that a killed run left behind."""

import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.domain.launch import ServerArgs
from autotune.domain.server import LaunchPlan, ServerMark
from autotune.errors import EnvironmentFault, UserError
from autotune.server.outside import Outside
from autotune.server.ports import LOOPBACK, FreePorts, PortRange
from autotune.server.processes import TOKEN_VARIABLE, boot_id, look
from autotune.server.session import LocalServer
from autotune.server.stopping import Clock, end_processes, remove_scratch, scratch_prefix

_DEFAULT_ENV = {
    "PYTHONUNBUFFERED": "1",  # a killed server has written its last words
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
# A Unix socket's path has at most 107 bytes; ZeroMQ's in vLLM is TMPDIR, a slash and a UUID of 36.
_MAX_TMP_BYTES = 45


class LocalLauncher:
    """Starts `command serve model ...` with its own session, log, scratch directory and loopback port."""

    def __init__(
        self,
        command: tuple[str, ...],
        model: str,
        logs_dir: Path,
        *,
        cache_dir: Path,
        ports: PortRange | None = None,
        env: Mapping[str, str] | None = None,
        memory_floor_bytes: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`cache_dir` keeps compiled kernels from trial to trial; `env` is added to every server's.

        `memory_floor_bytes` as in `Limits`.
        """
        self._command = command
        self._model = model
        self._logs_dir = logs_dir.absolute()
        self._cache_dir = cache_dir.absolute()
        self._ports = FreePorts(ports)
        self._env = dict(env or {})
        self._memory_floor_bytes = memory_floor_bytes
        self._clock = clock

    def prepare(self, number: int, args: ServerArgs) -> LaunchPlan:
        """Port, empty log file and scratch directory of trial `number` are there; nothing is spawned.

        Raises UserError when the flags ask for a Unix socket, EnvironmentFault when no port is free or a
        directory cannot be written.
        """
        # `--host` and `--port` of a user's script lose against the words that come last; this one would win.
        if any(word.partition("=")[0] == "--uds" for word in args.flags):
            raise UserError("--uds: a trial's server must listen on a loopback port; take the flag out")
        token = secrets.token_hex(8)
        port = self._ports.take()
        log_path = self._logs_dir / f"trial-{number}-{token[:8]}.log"
        try:
            self._cache_dir.mkdir(parents=True, exist_ok=True)
            self._logs_dir.mkdir(parents=True, exist_ok=True)
            log_path.touch(exist_ok=False)
            tmp_dir = tempfile.mkdtemp(prefix=scratch_prefix(token), dir=_scratch_parent())
        except OSError as error:
            raise EnvironmentFault(f"{error.filename}: cannot be written: {error.strerror}") from error
        mark = ServerMark(
            token=token, log_path=str(log_path.resolve()), tmp_dir=tmp_dir, port=port, boot_id=boot_id()
        )
        return LaunchPlan(
            command=(*self._command, "serve", self._model, *args.flags),
            listen=("--host", LOOPBACK, "--port", str(port)),
            env=self._added_env(args, mark),
            mark=mark,
        )

    def start(self, plan: LaunchPlan) -> LocalServer:
        """The server is spawned, in a session of its own. Raises EnvironmentFault when that is impossible."""
        outside = Outside(plan.argv[0], self._memory_floor_bytes)
        try:
            with Path(plan.mark.log_path).open("ab") as log:
                process = subprocess.Popen(
                    plan.argv,
                    env={**os.environ, **plan.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            outside.close()
            remove_scratch(plan.mark)
            raise EnvironmentFault(
                f"{plan.argv[0]} cannot be started: {error.strerror}; check the vLLM command"
            ) from error
        # Ours until `stop` waits for it, so there is a process, or at least a zombie, to look at.
        first = look(process.pid)
        started_s = first.started_s if first else None
        mark = replace(plan.mark, pid=process.pid, pid_started_s=started_s)
        outside.watch(mark)
        return LocalServer(process, mark, outside, self._clock)

    def reap(self, mark: ServerMark, grace_s: float) -> tuple[int, ...]:
        """Nothing of a dead run's server is left; returns the pids that were ended.

        Its port is not looked at: since then it may have become anyone's. Raises ProcessStillAlive.
        """
        ended = end_processes(mark, grace_s, self._clock)
        remove_scratch(mark)
        return ended

    def _added_env(self, args: ServerArgs, mark: ServerMark) -> dict[str, str]:
        """What the server has beyond autotune's own environment; the user's values go before ours."""
        chosen = {**self._env, **args.env}
        # Inductor caches in TMPDIR, so with a scratch directory every compilation would begin cold.
        defaults = {**_DEFAULT_ENV, "TORCHINDUCTOR_CACHE_DIR": str(self._cache_dir / "torchinductor")}
        unset = {name: value for name, value in defaults.items() if name not in os.environ}
        return {**unset, **chosen, "TMPDIR": mark.tmp_dir, TOKEN_VARIABLE: mark.token}


def _scratch_parent() -> str:
    """The system's directory for temporary files, or /tmp where its path is too long for sockets."""
    parent = tempfile.gettempdir()
    return parent if len(os.fsencode(parent)) <= _MAX_TMP_BYTES else "/tmp"  # noqa: S108 (mkdtemp makes it private)
