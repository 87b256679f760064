"""Reads a workload: from a TOML file, from the table of a study, or straight from a file of prompts."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from autotune.domain.slo import Slo, parse_slos
from autotune.domain.workload import Lengths, Workload
from autotune.errors import FileError, UserError
from autotune.files.prompt_lines import file_digest
from autotune.files.shipped import WORKLOADS, find, shown
from autotune.files.toml import Table, read_toml

T = TypeVar("T")
_KEYS = tuple(field.name for field in fields(Workload) if field.name != "source_digest")
_JSONL = ".jsonl"


def load_workload(ref: str, cwd: Path) -> Workload:
    """The workload that `ref` means: a file of prompts (.jsonl), a TOML file, or a name.

    `autotune.files.shipped.find` says where a name is looked up. Raises FileError for the first thing in a
    TOML file that is not allowed, UserError for an unknown name. `autotune.files.prompt_lines.source_texts`
    reads the prompts themselves.
    """
    if ref.endswith(_JSONL):
        return _of_prompts((cwd / ref).resolve(), ref)
    path = find(WORKLOADS, ref, cwd)
    if path.suffix != ".toml":
        raise FileError(ref, None, f"must be a workload in TOML (.toml) or prompts in JSON lines ({_JSONL})")
    file = read_toml(path, shown(path, cwd))
    file.only("schema", *_KEYS)
    return _read(file, path.parent, Workload(name=path.stem))


def study_workload(file: Table, folder: Path, cwd: Path) -> Workload:
    """The workload of a study in `folder`: its table `[workload]`, or the one that `workload = "REF"` names.

    Raises FileError for the first thing that is not allowed.
    """
    if "workload" in file and not file.has_table("workload"):
        try:
            return load_workload(file.text("workload") or "", cwd)
        except FileError:
            raise
        except UserError as error:
            raise file.error("workload", str(error)) from None
    table = file.table("workload")
    table.only(*_KEYS)
    return _read(table, folder, Workload())


def _of_prompts(path: Path, shown: str) -> Workload:
    """What holds for the file of prompts at `path` where nothing else is said: most of any chat log fits."""
    return Workload(
        name=path.stem,
        source=str(path),
        source_digest=file_digest(path, shown),
        # Together they need 8192 tokens of context: what a derived search space keeps in any case.
        prompt_tokens=Lengths(low=1, high=6144),
        output_tokens=Lengths(low=1, high=2048, median=200, sigma=1.0),
        prompts=256,
    )


def _read(table: Table, folder: Path, default: Workload) -> Workload:
    source = table.text("source")
    base = default if source is None else _of_prompts((folder / source).resolve(), source)
    try:
        return replace(
            base,
            name=table.text("name") or default.name,
            prompt_tokens=_lengths(table, "prompt_tokens", base.prompt_tokens),
            output_tokens=_lengths(table, "output_tokens", base.output_tokens),
            streams=_streams(table, base.streams),
            prompts=_or(table.whole("prompts"), base.prompts),
            seed=_or(table.whole("seed"), base.seed),
            min_window_s=_or(table.number("min_window_s"), base.min_window_s),
            max_window_s=_or(table.number("max_window_s"), base.max_window_s),
            shared_prefix_tokens=_or(table.whole("shared_prefix_tokens"), base.shared_prefix_tokens),
            prefix_groups=_or(table.whole("prefix_groups"), base.prefix_groups),
            turns=_or(table.whole("turns"), base.turns),
            rate_per_stream=table.number("rate_per_stream"),
            slos=_slos(table),
        )
    except ValueError as error:
        raise table.error(None, str(error)) from None


def _lengths(table: Table, key: str, default: Lengths) -> Lengths:
    """A number, or a table with `max` and perhaps `min`, or with `median` and `sigma` as well."""
    try:
        if not table.has_table(key):
            tokens = table.whole(key)
            return default if tokens is None else Lengths.fixed(tokens)
        spread = table.table(key)
        spread.only("min", "max", "median", "sigma")
        high = spread.whole("max")
        if high is None:
            raise spread.error("max", "is missing: write { min = 256, max = 1024 }")
        low = _or(spread.whole("min"), 1)
        return Lengths(low=low, high=high, median=spread.number("median"), sigma=spread.number("sigma"))
    except ValueError as error:
        raise table.error(key, str(error)) from None


def _streams(table: Table, default: tuple[int, ...]) -> tuple[int, ...]:
    given = table.sequence("streams")
    if given is None:
        return default
    counts = tuple(count for count in given if type(count) is int)
    if len(counts) != len(given):
        raise table.error("streams", f"must be rising whole numbers from 1, but is {given}")
    return counts


def _slos(table: Table) -> tuple[Slo, ...]:
    try:
        return parse_slos(str(text) for text in table.sequence("slos") or ())
    except UserError as error:
        raise table.error("slos", str(error)) from None


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
