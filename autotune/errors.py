"""The exceptions of autotune, and the exit code each one ends the command with.

    AutotuneError
    ├─ UserError            2   the request cannot be carried out as written; one sentence says why
    │  ├─ FileError             a file: which file, which key, what is wrong, what is allowed
    │  ├─ ExpressionError       a `when` or constraint expression
    │  └─ StudyMismatch         continuing a study with another model, space, workload or objective
    ├─ EnvironmentFault     3   vLLM missing, no free port, disk full, another autotune at work
    ├─ StoreError           4   study file locked, corrupt, or written by a newer autotune
    ├─ ProcessStillAlive    5   a server would not die: nothing is started on top of it
    └─ HarnessError        70   our bug: an invariant of autotune itself does not hold

An exception means that a call cannot do its job. A trial that ends badly is no exception: it is the
value `autotune.domain.trial.Failed`.
"""

from typing import ClassVar


class AutotuneError(Exception):
    """Base of all of them; `str(error)` is one clear sentence for the user."""

    exit_code: ClassVar[int] = 70


class UserError(AutotuneError):
    """The request cannot be carried out as written."""

    exit_code = 2


class FileError(UserError):
    """A file says something that is not allowed; the message names file, key, fault and remedy."""

    def __init__(self, path: str, key: str | None, problem: str) -> None:
        where = f"{path}: {key}" if key else path
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.key = key
        self.problem = problem


class ExpressionError(UserError):
    """A `when` or constraint expression is not in the small language that autotune evaluates."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"expression {source!r}: {problem}")
        self.source = source
        self.problem = problem


class StudyMismatch(UserError):
    """A study is continued with settings other than the ones it was begun with."""


class EnvironmentFault(AutotuneError):
    """The machine cannot do what is asked, whatever the request says."""

    exit_code = 3


class StoreError(AutotuneError):
    """The study file cannot be read or written."""

    exit_code = 4


class ProcessStillAlive(AutotuneError):
    """Processes of a stopped server survived SIGKILL, or its port is still held."""

    exit_code = 5

    def __init__(self, pids: tuple[int, ...], port: int | None) -> None:
        what = f"processes {', '.join(map(str, pids))}" if pids else f"port {port}"
        super().__init__(
            f"{what} of a stopped vLLM server could not be freed; no further trial is started on top of it"
        )
        self.pids = pids
        self.port = port


class HarnessError(AutotuneError):
    """An invariant of autotune itself is broken; please report it."""
