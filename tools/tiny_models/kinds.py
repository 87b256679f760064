"""Which kinds there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tiny_models.dense import DRAFT_LLAMA, LLAMA, make_llama
from tiny_models.dflash import DFLASH, make_dflash
from tiny_models.hybrid import QWEN35MOE, QWEN35MOE_INT4, make_qwen35moe, make_qwen35moe_int4


@dataclass(frozen=True, slots=True)
class Kind:
    """`make` writes config and weights into a directory, for these sizes and a seed."""

    make: Callable[[Path, Mapping[str, int], int], None]
    sizes: Mapping[str, int]


KINDS: Mapping[str, Kind] = {
    "llama": Kind(make_llama, LLAMA),
    "draft-llama": Kind(make_llama, DRAFT_LLAMA),
    "qwen35moe": Kind(make_qwen35moe, QWEN35MOE),
    "qwen35moe-ct4-g64": Kind(make_qwen35moe_int4, QWEN35MOE_INT4),
    "dflash": Kind(make_dflash, DFLASH),
}
