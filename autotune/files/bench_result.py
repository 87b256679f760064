"""Saves the result of `autotune bench` as JSON, and reads it again."""

from pathlib import Path

import msgspec

from autotune.domain.bench import BenchResult
from autotune.errors import EnvironmentFault, FileError

SCHEMA = 1
"""The version of the format."""


class _Tag(msgspec.Struct):
    schema: int


def bench_document(result: BenchResult) -> dict[str, object]:
    """`schema` and all of `result`, as plain values for JSON."""
    return {"schema": SCHEMA, **msgspec.to_builtins(result)}


def save_bench_result(result: BenchResult, path: Path) -> None:
    """Write `result` to `path`. Raises EnvironmentFault when that cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(bench_document(result)), indent=2)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from None


def load_bench_result(path: Path) -> BenchResult:
    """The result that was saved at `path`.

    Raises FileError when it cannot be read, was written by a newer autotune or holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(str(path), None, f"cannot be read: {error.strerror}") from None
    try:
        schema = msgspec.json.decode(content, type=_Tag).schema
    except msgspec.DecodeError as error:
        raise FileError(str(path), None, f"is not a result of `autotune bench`: {error}") from None
    if schema != SCHEMA:
        why = "it was written by a newer autotune" if schema > SCHEMA else "there is no such version"
        raise FileError(str(path), "schema", f"{schema} cannot be read, {why}; allowed is {SCHEMA}")
    try:
        return msgspec.json.decode(content, type=BenchResult)
    except msgspec.DecodeError as error:
        raise FileError(str(path), None, f"is not a result of `autotune bench`: {error}") from None
