"""Bytes of the types of numbers that weights and states are kept in."""

from collections.abc import Mapping

_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bfloat16", "float16", "half"), 2),
    **dict.fromkeys(("float32", "float"), 4),
}


def dtype_bytes(name: str | None) -> int:
    """Bytes of one number; 2 where no type is named, since vLLM left to itself makes 16 bits of 32."""
    return _BYTES.get((name or "").removeprefix("torch."), 2)
