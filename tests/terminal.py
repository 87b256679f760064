"""A command in a real terminal of a given width, and what it writes there."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_CONTROL = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[@-Z\\-_])")


def in_terminal(
    words: Sequence[str],
    *,
    columns: int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    until: str | None = None,
    timeout_s: float = 100.0,
) -> tuple[int, str]:
    """Exit code, and all that was written, with its control sequences. Both outputs are the terminal.

    When `until` was written the command is interrupted, as with Ctrl-C.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    given = {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(env or {})}
    running = subprocess.Popen(words, cwd=cwd, env=given, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    deadline_s = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline_s:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # how a terminal whose program has ended is told
                break
            if not part:
                break
            seen += part
            if until is not None and until.encode() in seen:
                running.send_signal(signal.SIGINT)
                until = None
        code = running.wait(timeout=10)
    finally:
        running.kill()
        running.wait()
        os.close(ours)
    return code, seen.decode("utf-8", errors="replace")


def plain(text: str) -> str:
    """Without what moves the cursor and colours; a line that was written over is on lines of its own."""
    return _CONTROL.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def colours(text: str) -> set[str]:
    """The colours that it sets; bold and dim are none."""
    codes = re.findall(r"\x1b\[([0-9;]*)m", text)
    return {code for group in codes for code in group.split(";") if re.fullmatch(r"[349]\d|10\d", code)}
