"""The times of one request, each None where the request does not have it."""

from autotune.domain.measurement import RequestRecord


def ttft_s(request: RequestRecord) -> float | None:
    """From sending it to its first output."""
    return request.chunk_s[0] - request.sent_s if request.chunk_s else None


def tpot_s(request: RequestRecord) -> float | None:
    """For each output token after the first; needs two, and the server's count of them."""
    if not request.chunk_s or request.output_tokens is None or request.output_tokens < 2:
        return None
    return (request.chunk_s[-1] - request.chunk_s[0]) / (request.output_tokens - 1)


def e2e_s(request: RequestRecord) -> float | None:
    """From sending it to its last output, of one that was not shortened."""
    return request.chunk_s[-1] - request.sent_s if request.chunk_s and not request.shortened else None
