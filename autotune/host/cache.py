"""Keeps what a vLLM said of itself in the user's cache directory, for as long as its files do not change.
A cache that cannot be read or written costs 20 s, and nothing else.
"""

import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from autotune.domain.machine import VllmInstall
from autotune.host.ask import PROBE_SOURCE

_log = logging.getLogger(__name__)


class _Key(msgspec.Struct):
    """What must be the same for a kept answer to be true: the questions, and the installed files."""

    probe: str
    files: list[tuple[str, int]]


class _Kept(msgspec.Struct):
    key: _Key
    install: VllmInstall


def load(command: Sequence[str], python: str | None, files: Sequence[Path]) -> VllmInstall | None:
    """What was kept of this vLLM; None unless all `files` are as they were then."""
    if python is None or not files:
        return None
    path = _path(command, python)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("%s cannot be read and is made again: %s", path, error)
        return None
    return kept.install if kept.key == _key(files) else None


def save(install: VllmInstall, files: Sequence[Path]) -> None:
    """Keep `install`, unless nothing would tell when it is outdated."""
    if install.python is None or not files:
        return
    path = _path(install.command, install.python)
    content = msgspec.json.encode(_Kept(_key(files), install))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / path.name
            made.write_bytes(content)
            made.replace(path)
    except OSError as error:
        _log.warning("what vLLM said of itself cannot be kept in %s: %s", path, error)


def cache_dir() -> Path:
    """Where autotune keeps what it can make again; it may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "autotune"


def _path(command: Sequence[str], python: str) -> Path:
    # The host's name is in it because homes are shared: the same vLLM has a GPU here and none there.
    identity = json.dumps([*command, python, platform.node()])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return cache_dir() / f"vllm-{digest}.json"


def _key(files: Sequence[Path]) -> _Key:
    return _Key(
        probe=hashlib.sha256(PROBE_SOURCE.encode()).hexdigest(),
        files=[(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()],
    )
