"""How much KV cache a model needs, in vLLM's pages: blocks of some tokens for each layer, states beside them.

vLLM gives all layers pages of one size, so that it can hand them out from one pool, and puts layers of the
same kind into groups of equal length, padded where they do not come out even. A request takes pages for each
group (vllm/v1/core/kv_cache_utils.py). That makes the cache of a hybrid larger than its keys and values.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The layers of one kind: a page holds `block_tokens` tokens, or one state where that is None."""

    layers: int
    page_bytes: int
    block_tokens: int | None
    window: int | None = None
    states: int = 0
    """States that a request keeps at a time."""

    def of_request(self, tokens: int, in_flight_tokens: int) -> int:
        """Pages of one layer for a request of `tokens`."""
        if self.block_tokens is None:
            return self.states
        if self.window is None:
            return math.ceil(tokens / self.block_tokens)
        held = min(self.window - 1 + in_flight_tokens, tokens)
        # One more, because a window seldom begins where a block does.
        return math.ceil(held / self.block_tokens) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The cache of a model on one device; `groups` is how many groups of `depth` layers each kind makes."""

    kinds: tuple[Pages, ...]
    in_flight_tokens: int
    """Tokens of one step, which layers with a window hold beside it."""

    @property
    def one_group(self) -> bool:
        """Whether all layers keep the same tokens in blocks of the same length."""
        return len({(kind.block_tokens, kind.window) for kind in self.kinds}) == 1 and not any(
            kind.states for kind in self.kinds
        )

    @property
    def depth(self) -> int:
        """Layers of a group."""
        counts = [kind.layers for kind in self.kinds]
        if self.one_group:
            return sum(counts)
        return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)

    @property
    def block_bytes(self) -> int:
        """Bytes of a page in all layers of a group."""
        if self.one_group:
            return sum(kind.layers * kind.page_bytes for kind in self.kinds)
        return self.depth * max(kind.page_bytes for kind in self.kinds)

    def request_blocks(self, tokens: int) -> int:
        """Blocks that a request of `tokens` holds at most."""
        if self.one_group:
            return self.kinds[0].of_request(tokens, self.in_flight_tokens)
        depth = self.depth
        return sum(
            math.ceil(kind.layers / depth) * kind.of_request(tokens, self.in_flight_tokens)
            for kind in self.kinds
        )

    def request_bytes(self, tokens: int) -> int:
        """Bytes that a request of `tokens` holds at most."""
        return self.request_blocks(tokens) * self.block_bytes

    @property
    def bytes_per_token(self) -> float:
        """What one more token of a long request takes."""
        growing = [kind for kind in self.kinds if kind.block_tokens and kind.window is None]
        if self.one_group:
            return sum(kind.layers * kind.page_bytes / (kind.block_tokens or 1) for kind in self.kinds)
        depth = self.depth
        return sum(
            math.ceil(kind.layers / depth) * self.block_bytes / (kind.block_tokens or 1) for kind in growing
        )

    def tokens(self, cache_bytes: float, context_tokens: int) -> int:
        """Tokens that vLLM says the cache holds: those of all requests of `context_tokens` that fit."""
        blocks = int(cache_bytes // self.block_bytes)
        return int(blocks / self.request_blocks(context_tokens) * context_tokens)


def kv_cache(kinds: Iterable[Pages], in_flight_tokens: int) -> KvCache | None:
    """The cache of layers of these kinds, with pages of one size where they cannot share a group.

    None for a model without layers that keep anything.
    """
    merged = _merged(kinds)
    if not merged:
        return None
    cache = KvCache(kinds=merged, in_flight_tokens=in_flight_tokens)
    return cache if cache.one_group else replace(cache, kinds=_merged(_of_one_size(merged)))


def _of_one_size(kinds: Sequence[Pages]) -> Iterable[Pages]:
    """Pages as large as the largest: by more tokens to a block where that comes out even, else by padding."""
    largest = max(kind.page_bytes for kind in kinds)
    for kind in kinds:
        block = kind.block_tokens
        if block is not None and largest % kind.page_bytes == 0:
            block *= largest // kind.page_bytes
        yield replace(kind, page_bytes=largest, block_tokens=block)


def _merged(kinds: Iterable[Pages]) -> tuple[Pages, ...]:
    """Kinds that differ in nothing but how many layers they have are one."""
    counts: dict[Pages, int] = {}
    for kind in kinds:
        alike = replace(kind, layers=0)
        counts[alike] = counts.get(alike, 0) + kind.layers
    return tuple(replace(kind, layers=count) for kind, count in counts.items() if count)
