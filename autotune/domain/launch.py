"""From a configuration to the words and variables that start its server; quoting lives here alone."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from autotune.domain.space import Configuration, Json, SearchSpace, Target, TargetKind, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArgs:
    """What a configuration adds to `vllm serve MODEL`: flags as separate words, and variables."""

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Equal for two that start the same server; can be looked up."""
        return self.flags, tuple(sorted(self.env.items()))


def server_args(space: SearchSpace, configuration: Configuration) -> ServerArgs:
    """Flags and variables of `configuration` on top of the space's fixed ones, in a stable order.

    A parameter overrides a fixed setting of the same target. Keys of one JSON flag are gathered into one
    object. A value the parameter lists in `omit` adds nothing, and takes the fixed setting away.
    """
    flags: dict[str, Json] = {}
    env: dict[str, str] = {}
    for target, value in _settings(space, configuration):
        match target.kind:
            case TargetKind.ENV if value is None:
                env.pop(target.name, None)
            case TargetKind.ENV:
                env[target.name] = _text(value)
            case TargetKind.FLAG:
                flags[target.name] = value
            case TargetKind.JSON:
                flags[target.name] = _with_key(flags.get(target.name), target, target.keys, value)
    words = [word for name, value in flags.items() for word in flag_words(name, value)]
    return ServerArgs(flags=tuple(words), env=env)


def settings(space: SearchSpace, configuration: Configuration) -> dict[str, Value]:
    """What `configuration` and the space's fixed settings say to vLLM, under the names vLLM has for it.

    A flag by its name with underscores, a variable by its name, a key of a JSON flag as `flag__key`.
    Variables are text to a program, so that one which reads as a number is that number, whoever wrote it.
    """
    said: dict[str, Value] = {}
    for target, value in _settings(space, configuration):
        name = setting_name(target)
        for older in [key for key in said if key == name or key.startswith(name + "__")]:
            del said[older]
        said.update(_flattened(name, value, env=target.kind is TargetKind.ENV))
    return said


@lru_cache(maxsize=1024)  # asked for each setting of each configuration that comes up
def setting_name(target: Target) -> str:
    """The name that `settings` has for what `target` sets."""
    return re.sub(r"\W", "_", "__".join((target.name.lstrip("-"), *target.keys)))


def _flattened(name: str, value: Json, *, env: bool) -> Iterable[tuple[str, Value]]:
    """Scalars below `name`; a list is its text."""
    match value:
        case None:
            return
        case dict():
            for key, inner in value.items():
                yield from _flattened(re.sub(r"\W", "_", f"{name}__{key}"), inner, env=env)
        case list():
            yield name, _text(value)
        case _:
            yield name, _number_or_text(_text(value)) if env else value


def _number_or_text(text: str) -> Value:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _settings(space: SearchSpace, configuration: Configuration) -> Iterable[tuple[Target, Json]]:
    """Targets and their values, later ones overriding earlier ones; None is a setting taken away."""
    for fixed in space.fixed:
        yield fixed.target, fixed.value
    for parameter in space.parameters:
        value = configuration.values.get(parameter.name)
        if value is not None:
            omitted = any(type(o) is type(value) and o == value for o in parameter.omit)
            yield parameter.target, None if omitted else value


def _with_key(node: Json, target: Target, keys: tuple[str, ...], value: Json) -> Json:
    """A copy of the JSON object `node` with the value at `keys` set, or without it where that is None.

    An object that comes out empty is None: a flag with `{}` would say something that nobody chose.
    """
    if node is not None and not isinstance(node, dict):
        raise ValueError(f"{target}: {node!r}, set before, is no JSON object and has no keys")
    copy = dict(node or {})
    key, *rest = keys
    inner = _with_key(copy.get(key), target, tuple(rest), value) if rest else value
    if inner is None:
        copy.pop(key, None)
    else:
        copy[key] = inner
    return copy or None


def flag_words(name: str, value: Json) -> list[str]:
    """The words of one flag: `--x`, `--no-x` for false, `--x a b` for a list, `--x '{...}'` for an object.

    None gives no words. Raises ValueError for what argparse offers no way to write: a list that is empty or
    has an item beginning with a dash, which it would take for the next flag, and the bare text `--`.
    """
    match value:
        case None:
            return []
        case True:
            return [name]
        case False:
            return ["--no-" + name.removeprefix("--")]
        case list():
            words = [_text(item) for item in value]
            if not words or any(word.startswith("-") for word in words):
                raise ValueError(f"{name}: a list of words that do not begin with a dash is needed: {words}")
            return [name, *words]
    text = _text(value)
    if text == "--":
        raise ValueError(f"{name}: the text '--' cannot be given to a flag")
    # argparse takes a word that begins with a dash for the next flag.
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def _text(value: Json) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case None:
            return ""
    return str(value)


def shell_words(argv: Iterable[str], env: Mapping[str, str]) -> str:
    """One line that a POSIX shell reads back as exactly these variables and words."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    words = [shlex.quote(word) for word in argv]
    if words and "=" in words[0] and not words[0].startswith("'"):
        words[0] = f"'{words[0]}'"  # the shell would read `a=b` as one more assignment
    return " ".join([*assignments, *words])


def shell_lines(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What `shell_words` gives, with each flag and its values on a line of its own."""
    flags = [position for position, word in enumerate(argv) if word.startswith("--")]
    begin = shell_words(argv[: flags[0]] if flags else argv, env)
    lines = [" ".join(map(shlex.quote, argv[flag:end])) for flag, end in pairwise([*flags, len(argv)])]
    return " \\\n  ".join([begin, *lines] if begin else lines)
