"""Rounds weights to 4 bits in the format of compressed-tensors (`pack-quantized`, symmetric, in groups)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_BITS = 4
_HALF = 2 ** (_BITS - 1)
_IN_AN_INT32 = 32 // _BITS


def quantize(module: str, weight: "Tensor", group_size: int) -> dict[str, "Tensor"]:
    """The tensors that take the place of `module.weight`, a matrix of [out, in]."""
    import torch

    rows, columns = weight.shape
    groups = weight.float().reshape(rows, columns // group_size, group_size)
    scale = (groups.abs().amax(dim=-1) / (_HALF - 0.5)).clamp(min=1e-6)
    rounded = (groups / scale[..., None]).round().clamp(-_HALF, _HALF - 1) + _HALF
    return {
        f"{module}.weight_packed": _pack(rounded.reshape(rows, columns)),
        f"{module}.weight_scale": scale.to(torch.bfloat16),
        f"{module}.weight_shape": torch.tensor([rows, columns], dtype=torch.int64),
    }


def quantization_config(group_size: int, ignore: Sequence[str]) -> dict[str, object]:
    """What `config.json` says of such weights; `ignore` are the modules left as they were."""
    weights = {
        "num_bits": _BITS,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": group_size,
        "dynamic": False,
        "observer": "mse",
    }
    group = {"targets": ["Linear"], "weights": weights, "format": "pack-quantized"}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(ignore),
    }


def _pack(values: "Tensor") -> "Tensor":
    """Eight numbers of 4 bits in each int32, the first in the lowest bits."""
    import torch

    rows, columns = values.shape
    nibbles = values.to(torch.int64).reshape(rows, columns // _IN_AN_INT32, _IN_AN_INT32)
    shifts = torch.arange(_IN_AN_INT32, dtype=torch.int64) * _BITS
    packed = (nibbles << shifts).sum(dim=-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
