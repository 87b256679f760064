"""Reads and writes the two files of a model: `config.json` and `model.safetensors`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS = "model.safetensors"


def read_tensors(directory: Path) -> dict[str, "Tensor"]:
    """The weights by name."""
    from safetensors.torch import load_file

    return load_file(directory / _WEIGHTS)


def write_tensors(directory: Path, tensors: Mapping[str, "Tensor"]) -> None:
    """Put these weights in place of any that are there."""
    from safetensors.torch import save_file

    whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(whole, directory / _WEIGHTS, metadata={"format": "pt"})


def change_config(directory: Path, changes: Mapping[str, object]) -> None:
    """Set these keys of `config.json`."""
    path = directory / "config.json"
    config: dict[str, object] = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **changes}, indent=2) + "\n")
