"""What a configuration needs of a device's memory, and what there is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one device. Weights include those of a draft, and not what is offloaded."""

    device_bytes: int
    usable_bytes: int
    """What vLLM may use: its share of the device."""
    weights_bytes: int
    activation_bytes: int
    graph_bytes: int
    other_bytes: int
    """Of the driver and libraries, and what the study found the estimate to be wrong by."""
    stated_kv_bytes: int | None
    """The size of the KV cache, where it was given: then nothing is measured by vLLM."""
    kv_bytes_per_token: float
    request_tokens: int
    """The longest request; one token where vLLM makes the context as long as the memory allows."""
    request_bytes: int
    """KV cache of one request of that length."""

    @property
    def fixed_bytes(self) -> int:
        """All but the KV cache."""
        return self.weights_bytes + self.working_bytes

    @property
    def working_bytes(self) -> int:
        """All but weights and KV cache."""
        return self.activation_bytes + self.graph_bytes + self.other_bytes

    @property
    def kv_available_bytes(self) -> int:
        """What is there for the KV cache; below 0 when not even the rest fits."""
        if self.stated_kv_bytes is not None:
            return self.stated_kv_bytes
        return self.usable_bytes - self.fixed_bytes
