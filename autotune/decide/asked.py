"""What the words of a command line and its variables ask vLLM for, by the names of its settings."""

import json
import re
from collections.abc import Iterable, Mapping

from autotune.domain.space import Value

_INT = re.compile(r"-?\d{1,15}")
_FLOAT = re.compile(r"-?\d{0,17}\.?\d{1,20}(?:[eE][-+]?\d{1,3})?")
_SHORT = re.compile(r"-[A-Za-z]")
# vLLM reads `2k` as 2000 and `2K` as 2048; vllm/engine/arg_utils.py, `human_readable_int`.
_HUMAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([kmgt])|(\d{1,12})([KMGT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALIASES = {"device_memory_utilization": "gpu_memory_utilization", "kv_cache_memory": "kv_cache_memory_bytes"}


def flag_values(argv: Iterable[str]) -> Mapping[str, tuple[str, ...] | bool]:
    """The flags of `argv`, each with its words: True alone, False for `--no-x`; the last one counts."""
    values: dict[str, tuple[str, ...] | bool] = {}
    flag = ""
    for word in argv:
        if _SHORT.match(word):
            flag, values[word] = word, True
        elif word.startswith("--"):
            flag, equals, text = word.partition("=")
            off = flag.startswith("--no-")
            flag = "--" + flag.removeprefix("--no-") if off else flag
            values[flag] = (text,) if equals else not off
        elif flag:
            before = values[flag]
            values[flag] = (*before, word) if isinstance(before, tuple) else (word,)
    return values


def asked(argv: Iterable[str], env: Mapping[str, str]) -> Mapping[str, Value]:
    """Settings by name (`max_num_seqs`) and variables (`OMP_NUM_THREADS`) with what they were given.

    A JSON object is its text, and each scalar in it has a name of its own: `speculative_config_method`. The
    dotted form `--speculative-config.method` means the same.
    """
    found: dict[str, Value] = {name: read_value(text) for name, text in env.items()}
    for flag, words in flag_values(argv).items():
        name = flag.removeprefix("--").replace("-", "_").replace(".", "_")
        name = _ALIASES.get(name, name)
        if isinstance(words, bool):
            found[name] = words
            continue
        text = " ".join(words)
        found[name] = read_value(text)
        found.update(_inside(name, text))
    return found


def cpu_ids(text: str) -> frozenset[int]:
    """The ids in a list as `0-3,8|9`; none in `auto` or `nobind`."""
    ids: set[int] = set()
    for part in re.split(r"[,|]", text.replace(" ", "")):
        first, _, last = part.partition("-")
        if re.fullmatch(r"\d{1,4}", first) and re.fullmatch(r"\d{0,4}", last):
            ids.update(range(int(first), int(last or first) + 1))
    return frozenset(ids)


def _inside(name: str, text: str) -> Iterable[tuple[str, Value]]:
    if not text.startswith("{"):
        return
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return  # vLLM refuses it too
    for key, value in content.items():
        if isinstance(value, bool | int | float | str):
            yield f"{name}_{key}", value


def read_value(text: str) -> Value:
    """The text as vLLM reads it: a number, also as people write it (`2k`, `8M`), else itself."""
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if human := _HUMAN.fullmatch(text):
        number, small, whole, large = human.groups()
        return int(float(number) * _DECIMAL[small]) if small else int(whole) * _BINARY[large]
    return text
