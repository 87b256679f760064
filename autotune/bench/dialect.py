"""How a completion request is written in each dialect, and what of the answer is output."""

import json
import re

from autotune.domain.bench import Dialect, Endpoint

# What the model writes can never match these: inside a JSON string the quotes are escaped.
_ANY_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*\{')
_ANY_TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content)"\s*:\s*"(?!")')

_ECHO_CHARS = 20
"""So many characters in a row that are in the prompt too are quoted from it."""
_LEFT_OUT = "[...]"


def request_body(dialect: Dialect, model: str, prompt_json: str, output_tokens: int, salt: str) -> bytes:
    """The JSON to send for at most `output_tokens` greedy tokens; for exactly so many where it can be asked.

    `prompt_json` is the prompt as JSON: a list of token ids, or a text. `salt`, different in each request,
    keeps its prompt apart from equal ones in the server's prefix cache: as `cache_salt` where the server
    knows that, else as the first line of the prompt.
    """
    fields: dict[str, object] = {
        "model": model,
        "max_tokens": output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if dialect.extensions:
        fields |= {"min_tokens": output_tokens, "ignore_eos": True, "cache_salt": salt}
    else:
        prompt_json = f'"{salt}\\n{prompt_json[1:]}'
    rest = json.dumps(fields)[1:]
    if dialect.endpoint is Endpoint.CHAT:
        return f'{{"messages":[{{"role":"user","content":{prompt_json}}}],{rest}'.encode()
    return f'{{"prompt":{prompt_json},{rest}'.encode()


def output_pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """Finds in an event of a stream whether it carries output.

    On vLLM's completions every choice is output, also an empty text: a token that ends inside a character has
    none. Elsewhere there are choices without a token, at the begin (the role, in a chat) and at the end (why
    it ended), so there has to be text.
    """
    exact = dialect.extensions and dialect.endpoint is Endpoint.COMPLETIONS
    return _ANY_CHOICE if exact else _ANY_TEXT


def without_echo(error: str, prompt_json: str) -> str:
    """`error` without what it quotes of a prompt that is text: a user's prompts are shown nowhere."""
    prompt = str(json.loads(prompt_json))
    begin = 0
    while begin + _ECHO_CHARS <= len(error):
        end = begin + _ECHO_CHARS
        if error[begin:end] not in prompt:
            begin += 1
            continue
        while end < len(error) and error[begin : end + 1] in prompt:
            end += 1
        error = error[:begin] + _LEFT_OUT + error[end:]
        begin += len(_LEFT_OUT)
    return error
