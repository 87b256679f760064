"""Follows the tracebacks of one source of lines, a process or one of its loggers, through mixed output."""

import re
from collections import deque

from autotune.decide.failures.rulebook import LogSigns

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(
    r'\s{0,12}File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,7}), in (?P<function>\S{1,200})'
)
_HEAD = re.compile(r"(?P<type>[A-Za-z_][\w.]{1,200})(?::(?: |$)|$|\()")
_SUFFIXES = (
    "Error",
    "Exception",
    "Exit",
    "Interrupt",
    "Timeout",
    "Expired",
    "Group",
    "Unsupported",
    "Failed",
)
_MESSAGE_LINES = 8
_MESSAGE_CHARS = 1000
"""Of each line after the first."""
_MAX_FUNCTIONS = 300


class Trace:
    """The traceback that a source is in, or was in last."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.frames: deque[str] = deque(maxlen=5)
        self.source_line = ""
        """The last line of source code shown: the assertion of a bare AssertionError."""
        self.chain = 0
        """Counts tracebacks; those joined by "direct cause" or "during handling" share a number."""
        self.fatal = False
        """Its source has said that the process ends over it."""
        self.survived = False
        """Its source has said that nobody minds it."""
        self.complete = False
        """The exception last found closed a traceback, it was not just a line that looks like one."""
        self.message = ""
        """The exception's line and those after it, while they may still belong to it."""
        self.message_number = 0
        """Counts messages, so that two lines of one are known to be of one."""
        self._open = False
        self._chained = False
        self._survived_next = False
        self._message_left = 0

    def feed(self, body: str, signs: LogSigns) -> bool:
        """Take in a line; True when it was only part of a traceback and can say nothing by itself."""
        if body.startswith(" "):
            if frame := _FRAME.match(body):
                self._frame(frame)
                return True
            if body.startswith("    "):
                if self._open and not body.lstrip().startswith(("^", "~")):
                    self.source_line = body.strip()
                return True
        self._introduction(body, signs)
        if body.endswith(_TRACEBACK):
            self._begin()
            return True
        return False

    def head(self, body: str) -> str | None:
        """The name of the exception whose line `body` is; None when it is no such line."""
        match = _HEAD.match(body)
        if match is None:
            self._continue(body)
            return None
        name = match["type"]
        last = name.rpartition(".")[2]
        by_name = last.endswith(_SUFFIXES) or last in ("Exception", "SystemExit", "KeyboardInterrupt")
        if not by_name and not (
            self._open and ("." in name or last[:1].isupper()) and not last.endswith("Warning")
        ):
            self._continue(body)
            return None
        if body == self.message:  # the same line once more, as some collectors write it
            return name
        self.complete, self._open = self._open, False
        self.message, self._message_left = body, _MESSAGE_LINES
        self.message_number += 1
        return name

    def _continue(self, body: str) -> None:
        """Join `body` to the message of the exception before it, as long as one can be meant."""
        if self._message_left > 0:
            self._message_left -= 1
            self.message = f"{self.message}\n{body[:_MESSAGE_CHARS]}"
        else:
            self.message = ""

    def _begin(self) -> None:
        if not self._chained:
            self.chain += 1
        self._open, self._chained = True, False
        self.survived, self._survived_next = self._survived_next, False
        self.functions.clear()
        self.frames.clear()
        self.source_line = self.message = ""
        self._message_left = 0

    def _frame(self, frame: re.Match[str]) -> None:
        if not self._open and self.message:  # frames without a heading, after a finished exception
            self._begin()
        self._open = True
        if len(self.functions) < _MAX_FUNCTIONS:
            self.functions.add(frame["function"])
        file = frame["file"].replace("\\", "/")
        if ("/vllm/" in file and "/.cache/" not in file) or not self.frames:  # compiled code lies in a cache
            name = file.rpartition("/vllm/")[2].rpartition("site-packages/")[2]
            self.frames.append(f"{frame['function']} ({name}:{frame['line']})")

    def _introduction(self, body: str, signs: LogSigns) -> None:
        if any(text in body for text in signs.chained):
            self._chained = True
        elif any(text in body for text in signs.fatal):
            self.fatal, self._survived_next = True, False
        elif any(text in body for text in signs.survived):
            self._survived_next = True
