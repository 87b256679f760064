"""Asks an installed vLLM what it is, in its own processes: `vllm --version` proves that it starts, and
`probe.py`, run by its Python, says the rest.
"""

import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from autotune.domain.machine import Device, FlagFact, VllmInstall
from autotune.errors import EnvironmentFault
from autotune.host import vllm_cpu

_log = logging.getLogger(__name__)

# An import of vLLM takes 8 s on two idle cores; from a cold network disk, minutes.
_TIMEOUT_S = 180.0
_VERSION = re.compile(r"(?:vllm\s+)?v?(\d+(?:\.\w+)+(?:\+[\w.]+)?)", re.IGNORECASE)

_Answer = TypeVar("_Answer")


class _Dists(msgspec.Struct):
    files: list[str]


class _Facts(msgspec.Struct):
    torch_version: str | None
    device: str | None
    flags: dict[str, FlagFact] | None
    problem: str | None


PROBE_SOURCE = resources.files("autotune.host").joinpath("probe.py").read_text(encoding="utf-8")
"""The script itself, handed to Python as text: run as a file, its directory's vllm.py would hide vLLM."""


def ask(command: Sequence[str], python: str | None) -> VllmInstall:
    """All facts of the vLLM that `command` starts and whose interpreter is `python`.

    Without an interpreter only the version is known; a `cpu` in it tells a CPU build, as it does for vLLM
    itself. Takes as long as two imports of vLLM. Raises EnvironmentFault when it does not start.
    """
    version = _version(command, python)
    if python is None:
        return VllmInstall(
            command=tuple(command),
            python=None,
            version=version,
            torch_version=None,
            device=Device.CPU if "cpu" in version else Device.OTHER,
        )
    facts = _run_probe(python, "facts", _Facts)
    if facts.problem is not None:
        _log.warning("the flags of vLLM %s are not known: %s", version, facts.problem)
    return VllmInstall(
        command=tuple(command),
        python=python,
        version=version,
        torch_version=facts.torch_version,
        device=Device(facts.device) if facts.device in ("cpu", "cuda") else Device.OTHER,
        flags=facts.flags,
    )


def dist_files(python: str) -> tuple[Path, ...]:
    """The files that change when another vLLM or torch is installed; empty when nothing tells that.

    Raises EnvironmentFault when `python` does not run.
    """
    return tuple(map(Path, _run_probe(python, "dists", _Dists).files))


def _version(command: Sequence[str], python: str | None) -> str:
    """What `vllm --version` prints, among whatever else is printed."""
    done = _run([*command, "--version"])
    if done.returncode != 0:
        raise EnvironmentFault(f"{' '.join(command)} does not start: {_root_line(done)}{_hint(python)}")
    found = [m[1] for line in done.stdout.splitlines() if (m := _VERSION.fullmatch(line.strip()))]
    if not found:
        raise EnvironmentFault(f"{' '.join(command)} is not vLLM: its --version prints no version")
    return found[-1]


def _run_probe(python: str, what: str, kind: type[_Answer]) -> _Answer:
    """The probe's answer to `what`."""
    with tempfile.TemporaryDirectory(prefix="autotune-probe-") as scratch:
        out = Path(scratch) / "answer.json"
        # In an empty directory, because Python looks for modules in its working directory first.
        done = _run([python, "-c", PROBE_SOURCE, what, str(out)], cwd=scratch)
        if done.returncode != 0:
            raise EnvironmentFault(f"{python} cannot say what its vLLM is: {_root_line(done)}{_hint(python)}")
        return msgspec.json.decode(out.read_bytes(), type=kind)


def _run(argv: Sequence[str], cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            cwd=cwd,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{argv[0]} did not answer within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise EnvironmentFault(f"{argv[0]} cannot be run: {error.strerror}") from None


def _root_line(done: subprocess.CompletedProcess[str]) -> str:
    """The exception that the others were raised from, else the last line that was printed.

    One that was being handled is not it: `No package metadata was found for vllm` hides a StopIteration.
    """
    lines = [line.rstrip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    handled = [i for i, line in enumerate(lines) if line.startswith("During handling of the above exception")]
    begin = next((i for i in starts if i > max(handled, default=-1)), len(lines))
    named = [line for line in lines[begin + 1 :] if not line.startswith(" ")]
    return (named or lines[-1:] or [f"it ended with {done.returncode} and printed nothing"])[0]


def _hint(python: str | None) -> str:
    """What to do about a vllm-cpu that is broken in a known way; else nothing."""
    site = None if python is None else _vllm_cpu_site(python)
    if site is None or not vllm_cpu.defects(site):
        return ""
    if Path(python or "").parent == Path(sys.executable).parent:
        return "; run: autotune doctor --repair-vllm-cpu"
    return (
        "; its vllm-cpu is broken in a known way: install vllm-autotune into that environment and run its "
        "`autotune doctor --repair-vllm-cpu`"
    )


def _vllm_cpu_site(python: str) -> Path | None:
    """The packages directory with vllm-cpu that `python` uses."""
    try:
        files = dist_files(python)
    except EnvironmentFault:
        return None  # it does not run at all, which is what the caller is about to say
    return next((f.parent.parent for f in files if f.parent.name.startswith("vllm_cpu-")), None)
