"""A user's prompts: the formats there are, and errors that name the line and show nothing of it."""

import json
from pathlib import Path

import pytest

from autotune.domain.prompt_text import PromptText
from autotune.domain.workload import Workload
from autotune.errors import FileError
from autotune.files.prompt_lines import read_prompts, source_texts
from autotune.files.workloads import load_workload


def user(text: object) -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


SYSTEM = {"role": "system", "content": "be brief"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
TOOL = {"role": "tool", "content": "42", "tool_call_id": "1"}
PARTS = user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])

GOOD = {
    "completion": ({"prompt": "hi"}, {"text": "hi"}),
    "completion with a length": ({"prompt": "hi", "max_tokens": 5}, {"text": "hi", "output_tokens": 5}),
    "chat": ({"messages": [SYSTEM, user("hi")]}, {"messages": (SYSTEM, user("hi"))}),
    "chat with a length": (
        {"messages": [user("hi")], "max_completion_tokens": 7, "max_tokens": 5},
        {"messages": (user("hi"),), "output_tokens": 7},
    ),
    "chat with an answer": (
        {"messages": [user("hi"), assistant("ho")], "max_tokens": None},
        {"messages": (user("hi"),), "answer": "ho"},
    ),
    "chat of several turns": (
        {"messages": [user("1"), assistant("2"), user("3"), assistant("4"), assistant("5")]},
        {"messages": (user("1"), assistant("2"), user("3")), "answer": "4\n5"},
    ),
    "chat that waits": (
        {"messages": [user("1"), assistant("2"), user("3")]},
        {"messages": (user("1"), assistant("2"), user("3"))},
    ),
    "tools": (
        {"messages": [user("1"), CALL, TOOL, assistant("2")], "tools": [{"type": "function"}]},
        {"messages": (user("1"), CALL, TOOL), "tools": ({"type": "function"},), "answer": "2"},
    ),
    "an answer that is a call": ({"messages": [user("1"), CALL]}, {"messages": (user("1"),)}),
    "text in parts": ({"messages": [PARTS]}, {"messages": (PARTS,)}),
    "batch": (
        {"custom_id": "1", "method": "POST", "body": {"model": "m", "messages": [user("hi")]}},
        {"messages": (user("hi"),)},
    ),
    "ShareGPT": (
        {
            "id": "x",
            "conversations": [
                {"from": "system", "value": "be brief"},
                {"from": "human", "value": "1"},
                {"from": "gpt", "value": "2"},
                {"from": "human", "value": "3"},
                {"from": "gpt", "value": "4"},
            ],
        },
        {"messages": (SYSTEM, user("1"), assistant("2"), user("3")), "answer": "4"},
    ),
}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "own.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


@pytest.mark.parametrize("case", GOOD)
def test_formats(case: str, tmp_path: Path) -> None:
    line, expected = GOOD[case]
    assert read_prompts(write(tmp_path, line), "x") == (PromptText(line=1, **expected),)


def test_a_line_keeps_its_number(tmp_path: Path) -> None:
    prompts = read_prompts(write(tmp_path, "\ufeff" + json.dumps({"prompt": "é"}), "", {"prompt": "b"}), "x")
    assert [(prompt.line, prompt.text) for prompt in prompts] == [(1, "é"), (3, "b")]


SECRET = "my secret"
WRONG = {
    "no JSON": (f"{{'{SECRET}'", "is no JSON"),
    "a list": ([SECRET], "must be a JSON object, one a line"),
    "a long number": (f'{{"{SECRET}": {"9" * 5000}}}', ""),
    "nested": ("[" * 100_000, "is nested too deeply"),
    "nothing": ({"text": SECRET}, "needs one of `messages`, `prompt` and `conversations`, but it has none"),
    "two": ({"prompt": SECRET, "messages": [user(SECRET)]}, "but it has messages and prompt"),
    "empty prompt": ({"prompt": ""}, "`prompt` must be a text that is not empty"),
    "several prompts": ({"prompt": [SECRET]}, "`prompt` must be a text"),
    "messages a text": ({"messages": SECRET}, "`messages` must be a list of objects"),
    "no messages": ({"messages": []}, "`messages` must be a list of objects that is not empty"),
    "message a text": ({"messages": [SECRET]}, "`messages` must be a list of objects"),
    "no role": ({"messages": [{"content": SECRET}]}, "message 1 needs a `role`"),
    "no content": ({"messages": [user("x"), user(None)]}, "message 2 needs a `content` that is a text"),
    "an image": (
        {"messages": [user([{"type": "text", "text": SECRET}, {"type": "image_url", "image_url": SECRET}])]},
        "images and sound cannot be sent",
    ),
    "no user": ({"messages": [SYSTEM, assistant(SECRET)]}, "`messages` has nothing that a user says"),
    "no tokens": ({"prompt": SECRET, "max_tokens": 0}, "`max_tokens` must be a whole number from 1"),
    "tokens true": ({"prompt": SECRET, "max_completion_tokens": True}, "`max_completion_tokens` must be"),
    "tools": ({"messages": [user(SECRET)], "tools": [SECRET]}, "`tools` must be a list of objects"),
    "unknown speaker": (
        {"conversations": [{"from": SECRET, "value": SECRET}]},
        "turn 1 needs a `from`: human, user, gpt",
    ),
    "no value": ({"conversations": [{"from": "human", "value": 1}]}, "turn 1 needs a `value`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_lines(case: str, tmp_path: Path) -> None:
    line, told = WRONG[case]
    with pytest.raises(FileError) as caught:
        read_prompts(write(tmp_path, {"prompt": "x"}, "", line), "own.jsonl")
    assert (caught.value.path, caught.value.key) == ("own.jsonl", "line 3")
    assert told in caught.value.problem
    assert SECRET not in str(caught.value)


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"^own: has no prompt"):
        read_prompts(write(tmp_path, "", ""), "own")
    with pytest.raises(FileError, match=r"^gone: cannot be read: No such file"):
        read_prompts(tmp_path / "gone.jsonl", "gone")
    (tmp_path / "bytes.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(FileError, match=r"line 1: is no UTF-8 text"):
        read_prompts(tmp_path / "bytes.jsonl", "bytes")


def test_the_lines_of_a_workload(tmp_path: Path) -> None:
    assert source_texts(Workload()) == ()
    path = write(tmp_path, {"prompt": "hi"})
    workload = load_workload("own.jsonl", tmp_path)
    assert source_texts(workload) == (PromptText(line=1, text="hi"),)
    path.write_text('{"prompt": "ho"}')
    with pytest.raises(FileError, match="has changed since"):
        source_texts(workload)
    path.unlink()
    with pytest.raises(FileError, match="No such file"):
        source_texts(workload)
