"""Asks the installed vLLM whether it takes a configuration, in one process that has imported it and lives as
long as a study does. Whatever goes wrong with that process, the answer is "not known", in bounded time.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from autotune.decide.failures.naming import without_secrets
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.machine import VllmInstall
from autotune.domain.space import Value
from autotune.domain.validation import Accepted, NotKnown, Refused, Validation
from autotune.host.dialogue import Dialogue, Silence

_log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "in_vllm"
# Its modules without autotune, which vLLM's Python need not have, and without the working directory, where a
# module may lie that vLLM would then import.
_BOOT = """
import sys, types
sys.path[:] = filter(None, sys.path)
for name, path in (("autotune", []), ("autotune.host", []), ("autotune.host.in_vllm", [sys.argv.pop()])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from autotune.host.in_vllm.main import main
main()
"""
# An import of vLLM takes 8 s on two idle cores; from a cold network disk, minutes.
_STARTUP_S = 180.0
# 0.15 s as a rule; 30 s when vLLM looks at an architecture for the first time, in a process of its own.
_QUESTION_S = 90.0
_STARTS = 2
# Each question would be some twenty requests to the model hub. What the servers have loaded is on the disk.
_ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}

_Line = TypeVar("_Line")


class _Ready(msgspec.Struct):
    ready: str | None


class _Answer(msgspec.Struct):
    accepted: dict[str, Value] | None = None
    refused: str | None = None
    not_known: str | None = None


class VllmValidator:
    """vLLM's own check of configurations of one model. A context manager: its process ends with it.

    The process is started at once and imports vLLM while something else is done; the first question waits
    for that. After it has hung or died it is started once more.
    """

    def __init__(
        self,
        vllm: VllmInstall,
        model: str,
        *,
        env: Mapping[str, str] | None = None,
        interrupt: Interrupt | None = None,
        startup_s: float = _STARTUP_S,
        question_s: float = _QUESTION_S,
    ) -> None:
        """`env` has the variables that all configurations share: vLLM reads some while it is imported.

        `interrupt` ends every wait, and with it the process.
        """
        self._python = vllm.python
        self._model = model
        self._env = dict(env or {})
        self._interrupt = interrupt
        self._startup_s, self._question_s = startup_s, question_s
        self._answers: dict[object, Validation] = {}
        self._starts = 0
        self._is_ready = False
        self._dialogue: Dialogue | None = None
        self._over = "the check is closed"
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The process and all it started are gone; every further question has the answer `NotKnown`."""
        if self._dialogue is not None:
            self._dialogue.end()
            self._dialogue = None

    def validate(self, args: ServerArgs) -> Validation:
        """What vLLM says. It is asked once, unless it could not tell: a model may be on the disk later."""
        key = args.words
        if key in self._answers:
            return self._answers[key]
        if self._dialogue is None or not self._wait_ready(self._dialogue):
            return NotKnown(why=self._over)
        question = {"argv": [self._model, *args.flags], "env": self._changes(args.env)}
        self._dialogue.say(json.dumps(question).encode())
        heard = _decoded(self._dialogue.hear(time.monotonic() + self._question_s), _Answer)
        if isinstance(heard, Silence):
            self._lose(f"vLLM was asked whether it takes {' '.join(args.flags)}, and {heard.why}")
            answer: Validation = NotKnown(why=heard.why)
        else:
            answer = _validation(heard)
        if isinstance(heard, Silence) or not isinstance(answer, NotKnown):
            self._answers[key] = answer
        return answer

    def _wait_ready(self, dialogue: Dialogue) -> bool:
        """Whether vLLM is imported and can be asked; when it cannot, it is over."""
        if not self._is_ready:
            heard = _decoded(dialogue.hear(dialogue.begun_s + self._startup_s), _Ready)
            why = heard.why if isinstance(heard, Silence) else heard.ready
            if why is not None:
                self._lose(f"vLLM cannot be asked what it takes, and launches must tell: {why}")
            self._is_ready = why is None
        return self._is_ready

    def _start(self) -> None:
        if self._python is None:
            self._over = "the Python of this vLLM is not known"
            return
        self._starts += 1
        env = {**os.environ, **_ENV, **self._env}
        try:
            self._dialogue = Dialogue([self._python, "-c", _BOOT, str(_FOLDER)], env, self._interrupted)
        except OSError as error:
            self._over = f"{self._python} cannot be started: {error.strerror}"

    def _lose(self, why: str) -> None:
        """The process is gone; another one is started if it had answered before, and only once."""
        self.close()
        self._over = without_secrets(why)
        if not self._interrupted():
            _log.warning("%s", self._over)
        if self._is_ready and self._starts < _STARTS and not self._interrupted():
            self._start()
        self._is_ready = False

    def _interrupted(self) -> bool:
        return self._interrupt is not None and self._interrupt.reason is not None

    def _changes(self, env: Mapping[str, str]) -> dict[str, str | None]:
        """From the variables of the process to those of a configuration: None is one to take away."""
        missing = {name: os.environ.get(name) for name in self._env if name not in env}
        return {**missing, **env}


def _decoded(heard: bytes | Silence, kind: type[_Line]) -> _Line | Silence:
    if isinstance(heard, Silence):
        return heard
    try:
        return msgspec.json.decode(heard, type=kind)
    except msgspec.DecodeError:
        return Silence(why="its answer could not be read")


def _validation(answer: _Answer) -> Validation:
    if answer.accepted is not None:
        return Accepted(effective=answer.accepted)
    if answer.refused is not None:
        return Refused(text=without_secrets(answer.refused))
    return NotKnown(why=without_secrets(answer.not_known or "vLLM was not asked"))
