"""The architecture of Qwen3.5-35B-A3B in small: layers of linear attention with a recurrent state, every
fourth one of full attention, a mixture of experts in each, and a layer that predicts several tokens (MTP).

Its two kinds of state share one KV cache, where prefix caching and speculation get into each other's way.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_models.checkpoint import change_config, read_tensors, write_tensors
from tiny_models.int4 import quantization_config, quantize
from tiny_models.tokenizer import BOS_ID, EOS_ID, VOCABULARY

if TYPE_CHECKING:
    from torch import Tensor

# 36 MB. The head sizes of the linear attention are the real model's: its kernels know no others.
QWEN35MOE = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "full_attention_interval": 4,
    "max_position_embeddings": 8192,
}
# Of the 4-bit kinds that this vLLM's CPU kernel for experts takes: groups of 64, symmetric.
QWEN35MOE_INT4 = {**QWEN35MOE, "group_size": 64}

_ROPE = {
    "rope_type": "default",
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "mrope_section": [4, 2, 2],
    "mrope_interleaved": True,
}
_FULL_ATTENTION_LAYER = "model.layers.3."
# As published 4-bit versions of this family: only the routed experts and the attention are quantized.
_KEPT = ("linear_attn", "shared_expert", "mlp.gate.", "mtp.", "lm_head", "embed")
_KEPT_MODULES = ["re:.*lm_head", "re:.*linear_attn.*", "re:.*shared_expert.*", "re:.*mlp.gate$", "re:.*mtp.*"]


def make_qwen35moe(directory: Path, sizes: Mapping[str, int], seed: int) -> None:
    """The model in bfloat16, with weights for MTP."""
    import torch
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    torch.manual_seed(seed)
    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCABULARY, bos_token_id=BOS_ID, eos_token_id=EOS_ID, rope_parameters=_ROPE, **sizes
    )
    Qwen3_5MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    tensors = read_tensors(directory)
    write_tensors(directory, {**tensors, **_mtp(tensors, sizes["hidden_size"])})
    change_config(directory, {"architectures": ["Qwen3_5MoeForCausalLM"], "mtp_num_hidden_layers": 1})


def make_qwen35moe_int4(directory: Path, sizes: Mapping[str, int], seed: int) -> None:
    """The same model with 4-bit experts and attention, in the format of compressed-tensors."""
    group_size = sizes["group_size"]
    make_qwen35moe(directory, {name: n for name, n in sizes.items() if name != "group_size"}, seed)
    tensors: dict[str, Tensor] = {}
    for name, tensor in read_tensors(directory).items():
        if name.endswith("_proj.weight") and tensor.dim() == 2 and not any(part in name for part in _KEPT):
            tensors |= quantize(name.removesuffix(".weight"), tensor, group_size)
        else:
            tensors[name] = tensor
    write_tensors(directory, tensors)
    change_config(directory, {"quantization_config": quantization_config(group_size, _KEPT_MODULES)})


def _mtp(tensors: Mapping[str, "Tensor"], hidden_size: int) -> dict[str, "Tensor"]:
    """The weights of the MTP layer, which transformers does not make: those of a layer of full attention."""
    import torch

    layer = {
        "mtp.layers.0." + name.removeprefix(_FULL_ATTENTION_LAYER): tensor
        for name, tensor in tensors.items()
        if name.startswith(_FULL_ATTENTION_LAYER)
    }
    norms = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
    return {
        **layer,
        "mtp.fc.weight": (torch.randn(hidden_size, 2 * hidden_size) * 0.02).to(torch.bfloat16),
        **{f"mtp.{name}.weight": torch.zeros(hidden_size, dtype=torch.bfloat16) for name in norms},
    }
