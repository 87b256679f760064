"""One line of a server's log, freed of what carried it: colours, docker, journald, kubernetes, JSON.

The forms of vLLM's own prefix from 0.6 to 0.32 are all read here and nowhere else.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_CHARS = 4096
"""Of a longer line only the beginning is looked at: the configuration dump is 5 kB, no message is."""

# The escape character itself, and what syslog, `cat -v` and a wrong decoder make of it.
_ESCAPES = ("\x1b", "#033", "^[", "\ufffd")
_COLOUR = re.compile(rf"(?:{'|'.join(map(re.escape, _ESCAPES))})\[[0-9;?]{{0,16}}[A-Za-z]")
_BARE_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,3}m")  # a collector dropped the escape character
_TIME = (
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: std(?:out|err) [FP])?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)"
)
_CARRIER = re.compile(
    rf"{_TIME} (?:[\w.-]{{1,64}} [\w.@/-]{{1,64}}(?:\[\d{{1,8}}\])?: )?"  # docker -t, CRI, syslog, journald
    r"|[\w./-]{1,80}(?:[-_]\d{1,4} {0,40}| {2,40})\|(?: |$)"  # docker compose
    r"|\[pod/[^\]]{1,200}\] "  # kubectl logs --prefix
    r"|\u2502 "  # the frame of k9s
)
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_PREFIX = re.compile(
    r"(?:\[rank\d{1,4}\]: ?)?"
    r"(?:\((?:(?P<process>[A-Za-z][\w-]{0,60})(?: [\w=]{1,20})?,? )?pid=(?P<pid>\d{1,10})[^)]{0,60}\) ?)*"
    rf"(?:- )?(?:{_LEVEL}(?:"
    r": {1,8}"  # uvicorn
    r"| \d\d-\d\d \d\d:\d\d:\d\d \[?(?P<origin>[\w./-]{1,80}:\d{1,6})\] ?"  # vLLM
    r"| \d{1,8} \[(?P<custom>[\w./-]{1,80}:\d{1,6})\] ?"  # vLLM with a pid in its format
    r"| - | (?=[\w./-]{1,80}:\d)))?"  # other libraries, Ray
)
_GROUP_MARGIN = re.compile(r" {2,12}\|(?: |$)")  # Python draws it beside the members of an exception group
_GLOG = re.compile(r"(?:\[rank\d{1,4}\]:)?\[?(?P<letter>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d")
_GLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}


class LogLine(NamedTuple):
    """`process` and `level` are empty where the line names none; `origin` is `file.py:line` of the logger."""

    process: str
    pid: str
    level: str
    origin: str
    body: str


def parse(raw: str) -> Iterator[LogLine]:
    """The logical lines of one physical line: one, or several behind carriage returns or in a JSON value."""
    text = raw.rstrip("\r\n")
    if text.startswith("{"):
        level, message = _json_message(text[: 16 * MAX_CHARS])
        for line in map(_parse_one, message.split("\n")):
            yield line if line.level else line._replace(level=level)
    elif "\r" in text:
        yield from (_parse_one(piece[:MAX_CHARS]) for piece in text.split("\r") if piece)
    else:
        yield _parse_one(text[:MAX_CHARS])


def _parse_one(text: str) -> LogLine:
    if any(escape in text for escape in _ESCAPES):
        text = _COLOUR.sub("", text)
    if text[:1] not in ("(", " "):
        text = _uncarried(text)
    match = _PREFIX.match(text)
    if match is None:  # unreachable, every part is optional
        return LogLine("", "", "", "", text)
    process, pid, level, origin, custom = match.group("process", "pid", "level", "origin", "custom")
    if level is None and (glog := _GLOG.match(text)):
        level = _GLOG_LEVELS[glog["letter"]]
    body = text[match.end() :].rstrip(" \t\r\u2502")
    if body.startswith("  ") and (margin := _GROUP_MARGIN.match(body)):
        body = body[margin.end() :]
    return LogLine(process or "", pid or "", level or "", origin or custom or "", body.removesuffix("^M"))


def _uncarried(text: str) -> str:
    """`text` without what docker, journald, syslog or kubernetes put before it: at most two of them."""
    for _ in range(2):
        carrier = _CARRIER.match(text)
        if carrier is None:
            break
        text = text[carrier.end() :]
    return _BARE_COLOUR.sub("", text) if _BARE_COLOUR.match(text) else text


def _json_message(text: str) -> tuple[str, str]:
    """Level and message of a line that was written as JSON, by a collector or by vLLM; else the line."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return "", text
    for key in ("log", "message", "msg", "MESSAGE"):
        if isinstance(record, dict) and isinstance(record.get(key), str):
            level = str(record.get("levelname") or record.get("level") or "").upper()
            return level if level in _GLOG_LEVELS.values() else "", str(record[key]).rstrip("\r\n")
    return "", text
