"""Prompts for a server that has no `/tokenize`: text, cut into pieces of about one token."""

import json
from collections.abc import Mapping, Sequence


class Pieces:
    """A `Tokenizer` whose ids are pieces of text, each `chars_per_token` characters long on average."""

    def __init__(self, chars_per_token: float) -> None:
        self._chars = chars_per_token
        self._pieces: list[str] = []
        self._ids: dict[str, int] = {}

    async def text_ids(self, text: str, *, begins: bool = True) -> list[int]:
        """The ids of `text`, whether or not it `begins` a prompt."""
        ends = [round(n * self._chars) for n in range(1, int(len(text) / self._chars) + 1)]
        if not ends or ends[-1] < len(text):
            ends.append(len(text))
        return [self._id(text[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    async def private_ids(self, request: Mapping[str, object]) -> list[int]:
        """The ids of a text or a chat, as `/tokenize` takes it; a chat becomes one text."""
        text = request.get("prompt")
        if isinstance(text, str):
            return await self.text_ids(text)
        messages = request.get("messages")
        turns = messages if isinstance(messages, Sequence) else ()
        return await self.text_ids("\n\n".join(_words(turn) for turn in turns if isinstance(turn, Mapping)))

    def prompt_json(self, ids: Sequence[int]) -> str:
        """The text that `ids` are, as JSON."""
        return json.dumps("".join(self._pieces[i] for i in ids))

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]


def _words(turn: Mapping[str, object]) -> str:
    """A turn of a chat: who speaks, and what."""
    content = turn.get("content")
    return f"{turn.get('role')}: {content if isinstance(content, str) else json.dumps(content)}"
