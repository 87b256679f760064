"""Reads from a config.json what decides how much memory the model takes.

What is not understood has no shape: nothing is estimated from a guess.
"""

from collections.abc import Mapping

import msgspec

from autotune.domain.model_shape import ModelShape
from autotune.host.model_config import ShapeConfig, Unknown, need
from autotune.host.model_layers import layers
from autotune.host.model_quantization import quantization


def read_shape(content: object) -> ModelShape | None:
    """The shape of the language model in a decoded config.json; None where it is not understood."""
    if not isinstance(content, Mapping):
        return None
    # A model that also sees has the language model apart; what both need may stand outside of it.
    apart = content.get("text_config")
    text = (
        {**content, **{k: v for k, v in apart.items() if v is not None}}
        if isinstance(apart, Mapping)
        else content
    )
    quantized = text.get("quantization_config")
    try:
        config = msgspec.convert(text, ShapeConfig)
        return ModelShape(
            hidden=need(config.hidden_size),
            vocabulary=need(config.vocab_size),
            layers=layers(config),
            dtype=config.dtype or config.torch_dtype or "bfloat16",
            # Where nothing is said, transformers ties them, except for families that say it.
            tied_embeddings=config.tie_word_embeddings is not False,
            quantization=None if quantized is None else quantization(quantized),
            mtp_layers=config.num_nextn_predict_layers or config.mtp_num_hidden_layers or 0,
        )
    except (Unknown, msgspec.ValidationError):
        return None
