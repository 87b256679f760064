"""Working memory of a step, and of vLLM's trial run with the largest one; rough, and low where in doubt.

Held against what vLLM 0.26 logged on an H200 (peak activation, GiB): 8B dense 0.88 to 0.93 at 8192 tokens and
0.25 at 512; 30B with 128 experts 1.02 at 8192 and 3.38 at 32768; 0.6B 0.23 at 8192.
"""

from autotune.decide.memory.ask import GIB, Ask
from autotune.domain.model_shape import FeedForward, ModelShape

OTHER_BYTES = round(0.22 * GIB)
"""Of CUDA itself beside torch's memory: 0.22 to 0.24 GiB in every clean run of vLLM 0.26 on one H200."""
GRAPH_BYTES = round(0.25 * GIB)
"""Estimated by vLLM 0.26 before it sizes the KV cache: 0.29 to 0.64 GiB, and nothing by its V2 runner."""
_SAMPLED_BYTES = 6
"""Bytes for each of the largest number of sequences and each word of the vocabulary, of logits and what the
sampler makes of them; 7 to 12 were logged."""


def default_batch(device_bytes: int, gpu_name: str, *, on_cpu: bool) -> tuple[int, int]:
    """Tokens of a step and sequences at a time where nothing is asked for; vllm/engine/arg_utils.py."""
    if on_cpu:
        return 2048, 128
    if device_bytes >= 160 * GIB:
        return 16384, 1024
    if device_bytes >= 70 * GIB and "A100" not in gpu_name.upper():
        return 8192, 1024
    return 2048, 256


def batch(ask: Ask, defaults: tuple[int, int]) -> tuple[int, int]:
    """Tokens of the largest step, and sequences at a time."""
    tokens, sequences = (2 * value for value in defaults) if ask.doubled else defaults
    tokens = ask.batched_tokens or tokens
    return tokens, min(ask.sequences or sequences, tokens)


def activation_bytes(shape: ModelShape, tokens: int, sequences: int, devices: int) -> int:
    """Working memory of a step of `tokens` for `sequences`, on one of the devices a layer is split over."""
    parts = [layer.feed_forward for layer in shape.layers if layer.feed_forward]
    widest = max((_width(part, shape.hidden, devices) for part in parts), default=0)
    # Input, output and residual of a layer, and one more while they are added; at worst a layer at a time.
    step = 2 * tokens * (4 * shape.hidden + widest)
    return max(step, _SAMPLED_BYTES * sequences * shape.vocabulary)


def _width(feed_forward: FeedForward, hidden: int, devices: int) -> int:
    """Numbers for each token between the matrices of a feed-forward: with experts, a row for each of them."""
    dense = (3 if feed_forward.gated else 2) * feed_forward.intermediate // devices
    row = 2 * hidden + feed_forward.expert_intermediate // devices
    return dense + feed_forward.experts_per_token * row
