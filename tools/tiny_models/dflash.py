"""A DFlash draft: layers that see hidden states of the target and guess a whole block of tokens at once.

It fits every kind here that has its hidden size and at least as many layers as it asks for.
"""

from collections.abc import Mapping
from pathlib import Path

from tiny_models.checkpoint import change_config, read_tensors, write_tensors
from tiny_models.tokenizer import BOS_ID, EOS_ID, VOCABULARY

DFLASH = {
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
_TARGET_LAYERS = [0, 2]
_BLOCK_SIZE = 8
# Stands for a token still to be guessed; the first token of a text never is.
_MASK_ID = BOS_ID


def make_dflash(directory: Path, sizes: Mapping[str, int], seed: int) -> None:
    """The draft in bfloat16. It has no embedding and no head of its own: it uses those of its target."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, bos_token_id=BOS_ID, eos_token_id=EOS_ID, tie_word_embeddings=False, **sizes
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    hidden_size = sizes["hidden_size"]
    tensors = {
        name.removeprefix("model."): tensor
        for name, tensor in read_tensors(directory).items()
        if name.startswith("model.layers.") or name == "model.norm.weight"
    }
    tensors["fc.weight"] = (torch.randn(hidden_size, hidden_size * len(_TARGET_LAYERS)) * 0.02).to(
        torch.bfloat16
    )
    tensors["hidden_norm.weight"] = torch.ones(hidden_size, dtype=torch.bfloat16)
    write_tensors(directory, tensors)
    seen = {"mask_token_id": _MASK_ID, "target_layer_ids": _TARGET_LAYERS}
    change_config(
        directory,
        {"architectures": ["DFlashDraftModel"], "block_size": _BLOCK_SIZE, "dflash_config": seen},
    )
