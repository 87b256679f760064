"""Reads a user's prompts from JSON lines: OpenAI chats and completions, batches of them, and ShareGPT.

No error shows anything of a line but its number: what users write is theirs.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Workload
from autotune.errors import FileError

_KINDS = ("messages", "prompt", "conversations")
_LIMITS = ("max_completion_tokens", "max_tokens")
_ASSISTANT = "assistant"
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": _ASSISTANT,
    "chatgpt": _ASSISTANT,
    "assistant": _ASSISTANT,
    "system": "system",
}


def file_digest(path: Path, shown: str) -> str:
    """The SHA-256 of the file at `path`, in hexadecimal. Raises FileError naming `shown`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(shown, None, f"cannot be read: {error.strerror}") from None


def source_texts(workload: Workload) -> tuple[PromptText, ...]:
    """The lines of the file that `workload` has its prompts from; none where it has them from the prose.

    Raises FileError when the file cannot be read, is not the one it was, or has a line that is no prompt.
    """
    if workload.source is None:
        return ()
    path = Path(workload.source)
    if file_digest(path, workload.source) != workload.source_digest:
        raise FileError(workload.source, None, "has changed since this workload was read")
    return read_prompts(path, workload.source)


def read_prompts(path: Path, shown: str) -> tuple[PromptText, ...]:
    """The prompts in the file at `path`, a line each; blank lines are passed over.

    Raises FileError that names `shown`, the line, what is wrong with it and what is allowed.
    """
    try:
        with path.open("rb") as file:
            prompts = tuple(_prompts(file, shown))
    except OSError as error:
        raise FileError(shown, None, f"cannot be read: {error.strerror}") from None
    if not prompts:
        raise FileError(shown, None, "has no prompt: write one JSON object a line")
    return prompts


def _prompts(lines: Iterator[bytes], shown: str) -> Iterator[PromptText]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _prompt(number, _json_object(line))
        except ValueError as error:
            raise FileError(shown, f"line {number}", str(error)) from None


def _json_object(line: bytes) -> Mapping[str, object]:
    try:
        value: object = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object, one a line")
    return value


def _prompt(number: int, record: Mapping[str, object]) -> PromptText:
    """The prompt of one line. Raises ValueError."""
    body = record.get("body")
    request = body if isinstance(body, dict) else record
    kinds = [kind for kind in _KINDS if request.get(kind) is not None]
    if len(kinds) != 1:
        found = f"it has {' and '.join(kinds)}" if kinds else "it has none of them"
        raise ValueError(f"needs one of `messages`, `prompt` and `conversations`, but {found}")
    limit = _output_tokens(request)
    if kinds == ["prompt"]:
        text = request["prompt"]
        if not isinstance(text, str) or not text:
            raise ValueError("`prompt` must be a text that is not empty")
        return PromptText(line=number, text=text, output_tokens=limit)
    messages = _messages(request) if kinds == ["messages"] else _turns(request)
    asked = _asked(messages, kinds[0])
    return PromptText(
        line=number,
        messages=tuple(messages[:asked]),
        tools=_objects(request, "tools") if request.get("tools") is not None else (),
        output_tokens=limit,
        answer="\n".join(filter(None, map(_text, messages[asked:]))) or None,
    )


def _output_tokens(request: Mapping[str, object]) -> int | None:
    for key in _LIMITS:
        value = request.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"`{key}` must be a whole number from 1")
        return value
    return None


def _objects(request: Mapping[str, object], key: str) -> tuple[Mapping[str, object], ...]:
    value = request[key]
    items = value if isinstance(value, list) else []
    objects = tuple(item for item in items if isinstance(item, dict))
    if not objects or len(objects) != len(items):
        raise ValueError(f"`{key}` must be a list of objects that is not empty")
    return objects


def _messages(request: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    messages = _objects(request, "messages")
    for place, message in enumerate(messages, start=1):
        if not isinstance(message.get("role"), str):
            raise ValueError(f"message {place} needs a `role`: user, assistant, system or tool")
        if _text(message) is None and not (message["role"] == _ASSISTANT and message.get("tool_calls")):
            raise ValueError(
                f"message {place} needs a `content` that is a text; images and sound cannot be sent"
            )
    return messages


def _turns(request: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The messages that the turns of a ShareGPT conversation are."""
    messages: list[Mapping[str, object]] = []
    for place, turn in enumerate(_objects(request, "conversations"), start=1):
        role = _SHAREGPT_ROLES.get(str(turn.get("from")))
        if role is None:
            raise ValueError(f"turn {place} needs a `from`: {', '.join(_SHAREGPT_ROLES)}")
        if not isinstance(turn.get("value"), str):
            raise ValueError(f"turn {place} needs a `value` that is a text")
        messages.append({"role": role, "content": turn["value"]})
    return messages


def _asked(messages: Sequence[Mapping[str, object]], key: str) -> int:
    """How many of them come before the answer to the last one that is not the assistant's."""
    if not any(message["role"] == "user" for message in messages):
        raise ValueError(f"`{key}` has nothing that a user says")
    return max(at for at, message in enumerate(messages, start=1) if message["role"] != _ASSISTANT)


def _text(message: Mapping[str, object]) -> str | None:
    """The text of a message; None where it has none, or something besides text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    parts = [part.get("text") if isinstance(part, dict) else None for part in content]
    texts = [text for text in parts if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(parts) else None
