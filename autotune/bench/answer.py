"""Takes in the answer to one request while it arrives.

Times are taken when bytes are read and before any of them is looked at. Most events of an answer differ from
one another in nothing but one string, the text: once one of them has been understood, the others are
recognized by the bytes before and after that string, at a third of what it costs to take them apart.
"""

import re
import sys
from collections.abc import Callable

from autotune.bench.exchange import Exchange, has_more_than_output
from autotune.bench.fault import BODY_BYTES, refusal
from autotune.bench.sse import SseParser

_TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content)":"((?:[^"\\]|\\.)+)"')
_NEVER = sys.maxsize


class Answer:
    """Notes in `exchange` what the answer to it brings; a `autotune.bench.connection.Reader`."""

    def __init__(self, exchange: Exchange, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.read_s = clock()
        self.over = False
        self._exchange = exchange
        self._chunk_s = exchange.chunk_s
        self._events = SseParser()
        self._refusal = b""
        # The usual event: the bytes before and after its text, with their lengths. It is longer than
        # `_bare` bytes, which is `_NEVER` while there is none, and inside of an event.
        self._head = self._tail = b""
        self._head_bytes = self._tail_bytes = 0
        self._bare = _NEVER

    def on_status(self, status: int) -> None:
        """Note the status of the response."""
        self._exchange.status = status

    def on_body(self, data: bytes) -> None:
        """Note what is in a part of the body, all of which was read at `read_s`."""
        size = len(data)
        if (
            size > self._bare
            and data.startswith(self._head)
            and data.endswith(self._tail)
            # A quote in the text would be a sign that the text ends there, and that other things follow.
            and data.find(b'"', self._head_bytes, size - self._tail_bytes) < 0
        ):
            self._chunk_s.append(self.read_s)
        elif self._exchange.status == 200:
            self._take_apart(data)
        else:
            self._refusal += data
            self.over = len(self._refusal) >= BODY_BYTES

    def _take_apart(self, data: bytes) -> None:
        outputs = len(self._chunk_s)
        events = self._events.feed(data)
        for event in events:
            self._exchange.take(event, self.read_s)
        self.over = self._exchange.error is not None
        if not self._head and len(self._chunk_s) == outputs + 1 and not has_more_than_output(data):
            self._learn(data, events[0])
        is_next = self._head and self._events.is_between_events
        self._bare = self._head_bytes + self._tail_bytes if is_next else _NEVER

    def _learn(self, data: bytes, event: bytes) -> None:
        """Let `event` be the usual one, if it is all that is in `data` and has a text."""
        if data == b"data: %b\n\n" % event and (text := _TEXT.search(data)):
            self._head, self._tail = data[: text.start(1)], data[text.end(1) :]
            self._head_bytes, self._tail_bytes = len(self._head), len(self._tail)

    def check(self) -> None:
        """Fail the request unless this is the whole answer to it."""
        if self._exchange.status == 200:
            self._exchange.check()
        else:
            self._exchange.refuse(refusal(self._exchange.status, self._refusal))

    def check_broken_off(self) -> None:
        """The same for an answer that ended because the connection did."""
        if self._exchange.status is None:
            self._exchange.fail("the server closed the connection")
        elif self._exchange.status == 200 and not self._exchange.answered:
            self._exchange.fail("the connection broke inside the answer")
        else:
            self.check()
