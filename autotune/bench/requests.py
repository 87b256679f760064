"""What each stream sends, and when: the same requests in every trial, but for the salt."""

import itertools
import random
from collections.abc import Iterator

from autotune.bench.client import Completion, Prompt
from autotune.domain.workload import Workload


def stream_requests(
    model: str, prompts: tuple[Prompt, ...], workload: Workload, streams: int, stream: int, salt: str
) -> Iterator[Completion]:
    """What stream number `stream` of `streams` sends, without end; the same in every trial but for the salt.

    Its first request is cut to a random part of the length, a tenth or more: the streams leave step.
    """
    rng = random.Random(f"{workload.seed}-{streams}-{stream}")  # noqa: S311 - the same requests in every trial
    first_share = rng.uniform(0.1, 1.0)
    order = rng.sample(range(len(prompts)), len(prompts))
    for sequence in itertools.count():
        index = order[sequence % len(order)]
        share = 1.0 if sequence else first_share
        yield Completion(
            model=model,
            prompt=prompts[index],
            output_tokens=max(1, round(prompts[index].output_tokens * share)),
            salt=f"{salt}-{stream}-{sequence}",
            stream=stream,
            sequence=sequence,
            prompt_index=index,
            shortened=not sequence,
        )


def arrival_gaps_s(workload: Workload, streams: int, stream: int) -> Iterator[float]:
    """Seconds before each request of a stream of an open loop, without end: a Poisson process.

    Raises ValueError for a closed loop, in which requests do not arrive by the clock.
    """
    if workload.rate_per_stream is None:
        raise ValueError("a closed loop has no arrivals")
    rng = random.Random(f"arrivals-{workload.seed}-{streams}-{stream}")  # noqa: S311 - the same in every trial
    while True:
        yield rng.expovariate(workload.rate_per_stream)
