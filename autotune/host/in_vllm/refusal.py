"""Tells an error that vLLM raises at every launch with these settings from one that a launch may not meet."""

from __future__ import annotations

import contextlib
import io
import os
import re
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_MESSAGE = 299
# Raised of values. No subclasses: a wrong JSON file and a missing repository are ValueErrors, too.
_OF_SETTINGS = (ValueError, AssertionError, NotImplementedError)
# May have been handled on the way to one of those, without being what was wrong.
_HARMLESS = (*_OF_SETTINGS, KeyError, IndexError, AttributeError, TypeError)
# Files, networks, packages and free memory may be otherwise at the launch.
_CIRCUMSTANCE = re.compile(
    r"no such file|do(es)? ?n[o']t exist|not found|can ?not find|could not find|repository|download"
    r"|connect|time[d ] ?out|permission|(free|available) memory|no module|install",
    re.IGNORECASE,
)


class ParserError(Exception):
    """The parser of the command line ended the program with this message."""


@contextlib.contextmanager
def parser_errors() -> Iterator[None]:
    """An error of argparse inside is a ParserError; other ends of the program stay SystemExit."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as end:
        message = said.getvalue().rpartition(": error: ")[2].strip()
        if end.code != 2 or not message:
            raise
        raise ParserError(message) from None


def judge(error: BaseException, vllm_folder: str) -> tuple[str, bool]:
    """What vLLM says, its message in the last line, and whether it surely says so at every launch."""
    if isinstance(error, ParserError):
        text, sure = _one_line(str(error)), True
    else:
        text, sure = _text(error), _is_sure(error, vllm_folder)
    return text, sure and not _CIRCUMSTANCE.search(text)


def _is_sure(error: BaseException, vllm_folder: str) -> bool:
    """Whether vLLM itself raised it of values, and nothing else went wrong before."""
    for inner in _behind(error):
        if _details(inner) is None and type(inner) not in _HARMLESS and not _is_of_vllm(inner):
            return False
    details = _details(error)
    if details is not None:
        causes = [cause for cause, _ in details if cause is not None]
        return all(_is_sure(cause, vllm_folder) for cause in causes)
    kind_fits = type(error) in _OF_SETTINGS or (_is_of_vllm(error) and isinstance(error, ValueError))
    frames = traceback.extract_tb(error.__traceback__)
    # transformers_utils reads the files of models, from the network too.
    where = frames[-1].filename if frames else ""
    return kind_fits and where.startswith(vllm_folder + os.sep) and "transformers_utils" not in where


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The errors that were being handled, or were named as the cause, when `error` was raised."""
    met = {id(error)}
    todo = [error.__cause__, error.__context__]
    while todo:
        inner = todo.pop()
        if inner is not None and id(inner) not in met:
            met.add(id(inner))
            todo += [inner.__cause__, inner.__context__]
            yield inner


def _is_of_vllm(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "vllm"


def _details(error: BaseException) -> list[tuple[BaseException | None, str]] | None:
    """The single faults of a pydantic error, each with what a validator raised, if one did; else None."""
    faults = getattr(error, "errors", None)
    if faults is None or not type(error).__module__.startswith("pydantic"):
        return None
    details: list[tuple[BaseException | None, str]] = []
    for fault in faults():
        cause = fault.get("ctx", {}).get("error")
        where = ".".join(map(str, fault["loc"]))
        if isinstance(cause, BaseException):
            details.append((cause, _own_text(cause)))
        else:
            details.append((None, f"{where}: {fault['msg']}" if where else fault["msg"]))
    return details


def _text(error: BaseException) -> str:
    """The kind of error, and the message; of several faults the first."""
    details = _details(error)
    if details:
        return f"{type(error).__name__} of {getattr(error, 'title', 'a value')}\n{_one_line(details[0][1])}"
    return _one_line(f"{type(error).__name__}: {_own_text(error)}")


def _own_text(error: BaseException) -> str:
    """The message; of a bare assertion, the line of source that it stands in."""
    frames = traceback.extract_tb(error.__traceback__)
    return str(error) or (frames[-1].line if frames else None) or type(error).__name__


def _one_line(message: str) -> str:
    """The beginning of `message`, without what pydantic adds to each fault: type, value and a link."""
    words = " ".join(message.partition(" [type=")[0].split())
    return words if len(words) <= _MAX_MESSAGE else words[: _MAX_MESSAGE - 3] + "..."
