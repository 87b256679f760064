"""Reads a log of any size line by line; no byte in it stops the reading, and no line is kept whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from autotune.errors import FileError

MAX_LINE_BYTES = 128 * 1024
"""Of a longer line the rest is skipped; the rules look at 4 kB of it, or at 64 kB where it is JSON."""

_LOOK_BYTES = 8192
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def file_lines(path: Path) -> Iterator[str]:
    """The lines of the log at `path`. Raises FileError when it cannot be read or is no text."""
    shown = str(path)
    try:
        with path.open("rb") as file:
            yield from stream_lines(file, shown)
    except FileNotFoundError:
        raise FileError(shown, None, "there is no such file") from None
    except OSError as error:
        raise FileError(shown, None, f"cannot be read: {error.strerror}") from None


def stream_lines(stream: BinaryIO, shown: str) -> Iterator[str]:
    """The lines of `stream`, ended by line feeds alone, with U+FFFD for bytes that are no UTF-8.

    Raises FileError naming `shown` when it begins like something else than text.
    """
    first = True
    while line := stream.readline(MAX_LINE_BYTES):
        if first:
            _check_text(line[:_LOOK_BYTES], shown)
            first = False
        piece = line
        while len(piece) == MAX_LINE_BYTES and not piece.endswith(b"\n"):
            piece = stream.readline(MAX_LINE_BYTES)
        yield line.rstrip(b"\n").decode("utf-8", errors="replace")


def _check_text(head: bytes, shown: str) -> None:
    """Raise FileError with the way to read it where `head` begins no text."""
    if head.startswith(_GZIP):
        raise FileError(shown, None, f"is compressed; say: zcat {shown} | autotune explain -")
    if head.startswith(_ZSTD):
        raise FileError(shown, None, f"is compressed; say: zstdcat {shown} | autotune explain -")
    if head.startswith(_UTF16):  # PowerShell's `docker logs NAME > FILE`
        how = f"iconv -f utf-16 -t utf-8 {shown} | autotune explain -"
        raise FileError(shown, None, f"is text in UTF-16; say: {how}")
    # A log that was emptied while its writer went on begins with a hole of zeros.
    if b"\0" in head.lstrip(b"\0"):
        raise FileError(shown, None, "is no text; give the log that the server wrote")
