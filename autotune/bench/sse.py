"""Server-sent events from raw bytes.

Only CR and LF end a line. A parser that splits decoded text with `str.splitlines` (httpx `aiter_lines` does)
also breaks at U+2028 and U+0085, which a model writes inside a JSON string without any escape.
"""


class SseParser:
    """Turns the bytes of one event stream, cut anywhere, into the data of its events."""

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []
        self._ended_with_cr = False

    @property
    def is_between_events(self) -> bool:
        """Whether nothing of an event has come that is not complete."""
        return not (self._line or self._data or self._ended_with_cr)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes; several `data` lines are joined by LF.

        Comments and fields other than `data` are passed over, and so are events without data. An event
        counts as complete at the blank line after it, never at the end of the stream.
        """
        if not chunk:
            return []
        # A CR ends its line at once, so a LF that follows in the next chunk belongs to that same line end.
        text = chunk[1:] if self._ended_with_cr and chunk.startswith(b"\n") else chunk
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._line = (self._line + text).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
