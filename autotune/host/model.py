"""Reads what can be known of a model without loading it: its config.json and the size of its weight files,
in a local directory or in the Hugging Face cache. Never downloads anything.
"""

import json
import os
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from autotune.domain.machine import Model
from autotune.errors import FileError, UserError
from autotune.host.model_shape import read_shape

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_PATH_STARTS = ("/", "./", "../", "~")
# What training leaves beside the weights; vLLM does not load these either (weight_utils.py,
# filter_files_not_needed_for_inference).
_NOT_WEIGHTS = {"training_args.bin", "optimizer.bin"}

_Content = TypeVar("_Content")
_Count = Annotated[int, msgspec.Meta(ge=0)] | None


class _TextConfig(msgspec.Struct):
    """What a config.json says of the language model: at its top, or apart for one that also sees."""

    max_position_embeddings: _Count = None
    num_nextn_predict_layers: _Count = None
    mtp_num_hidden_layers: _Count = None


class _Quantization(msgspec.Struct):
    quant_method: str | None = None


class _Config(_TextConfig):
    architectures: list[str] | None = None
    text_config: _TextConfig | None = None
    quantization_config: _Quantization | None = None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def read_model(name: str) -> Model:
    """The model that `vllm serve NAME` would load; facts are None where its files are not on this machine.

    Raises UserError when `name` is neither a directory with a config.json nor an `org/name` of the Hugging
    Face Hub, and FileError when its config.json cannot be understood.
    """
    if not name:
        raise UserError("the model's name is empty")
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # `~somebody`, who has no home here
        path = Path(name)
    if path.is_dir():
        # The whole path, so that a launch file works from any directory.
        return _read_directory(str(path.absolute()), path)
    if path.exists():
        raise UserError(f"model {name} is a file; give the directory that holds config.json and the weights")
    if name.startswith(_PATH_STARTS) or not _HUB_ID.fullmatch(name):
        raise UserError(
            f"model {name} is not here: give a directory that holds config.json and the weights, or the "
            f"`org/name` of a model on the Hugging Face Hub"
        )
    snapshot = _cached_snapshot(name)
    if snapshot is not None:
        return _read_directory(name, snapshot)
    if Path(name).parent.is_dir():
        raise UserError(
            f"model {name} is not here: the directory {Path(name).parent}/ has no {Path(name).name} in it; "
            f"if you mean the Hub's {name}, run autotune in another directory"
        )
    return Model(name=name)


def _read_directory(name: str, directory: Path) -> Model:
    """The facts of the model in `directory`."""
    config_path = directory / "config.json"
    if not config_path.is_file():
        raise UserError(f"model {name} has no config.json, so it is not a model that vLLM can serve")
    content = _json(config_path)
    config = _convert(content, _Config, config_path)
    parts = (config, config.text_config or _TextConfig())
    return Model(
        name=name,
        architecture=config.architectures[0] if config.architectures else None,
        max_model_len=next((p.max_position_embeddings for p in parts if p.max_position_embeddings), None),
        quantization=config.quantization_config.quant_method if config.quantization_config else None,
        has_mtp=any(p.num_nextn_predict_layers or p.mtp_num_hidden_layers for p in parts),
        weight_bytes=_weight_bytes(directory),
        shape=read_shape(content),
    )


def _cached_snapshot(name: str) -> Path | None:
    """The newest snapshot of `name` in the Hugging Face cache that has a config.json; None without one."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    repository = Path(hub).expanduser() / ("models--" + name.replace("/", "--"))
    snapshots = [s for s in (repository / "snapshots").glob("*") if (s / "config.json").is_file()]
    try:
        main = (repository / "refs/main").read_text().strip()
    except OSError:
        main = ""
    return max(snapshots, key=lambda s: (s.name == main, s.stat().st_mtime), default=None)


def _weight_bytes(directory: Path) -> int | None:
    """Bytes of the files vLLM would load; None when there are none, or when some of them are missing."""
    files = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if files and index.is_file():
        # The index decides: a repository may hold the same weights a second time (consolidated.safetensors).
        files = [directory / name for name in set(_convert(_json(index), _Index, index).weight_map.values())]
    if not files:
        files = [f for f in sorted(directory.glob("*.bin")) if f.name not in _NOT_WEIGHTS]
    if not files or not all(f.is_file() for f in files):
        return None
    return sum(f.stat().st_size for f in files)


def _json(path: Path) -> object:
    """The JSON in the file. Raises FileError where it holds none."""
    try:
        # The standard library's parser, because Hugging Face's files may say Infinity, which is not JSON.
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _not_that(path, error) from None
    return content


def _convert(content: object, kind: type[_Content], path: Path) -> _Content:
    """The content of the file as a `kind`. Raises FileError for anything else."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _not_that(path, error) from None


def _not_that(path: Path, error: Exception) -> FileError:
    return FileError(str(path), None, f"is not what this kind of file holds: {error}")
