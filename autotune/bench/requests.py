"""What each stream sends, and when: the same requests in every trial, but for the salt.

A salt keeps prompts that begin alike apart in the server's prefix cache. Where nothing is to be found there
each request has one of its own. A conversation has one, each time it is played. Where prompts share their
beginnings, so do all streams, but no prompt is sent twice with it: the prompts are dealt out, and whoever
has played all of its hand goes on with the next salt.
"""

import itertools
import random
from collections.abc import Iterator

from autotune.bench.exchange import Completion, Prompt
from autotune.domain.bench import VLLM, Dialect
from autotune.domain.workload import Workload


def stream_requests(
    model: str,
    prompts: tuple[Prompt, ...],
    workload: Workload,
    streams: int,
    stream: int,
    salt: str,
    dialect: Dialect = VLLM,
) -> Iterator[Completion]:
    """What stream number `stream` of `streams` sends, without end; the same in every trial but for the salt.

    Its first request is cut to a random part of the length, a tenth or more, and its first conversation
    begins with a random turn: the streams leave step.
    """
    rng = random.Random(f"{workload.seed}-{streams}-{stream}")  # noqa: S311 - the same requests in every trial
    first_share = rng.uniform(0.1, 1.0)
    first_turn = rng.randrange(workload.turns)
    count = len(prompts) // workload.turns
    if workload.shared_prefix_tokens:
        plays = _dealt(count, workload.seed, streams, stream)
    else:
        plays = _alone(rng.sample(range(count), count), stream)
    indices = (
        (conversation * workload.turns + turn, kept_apart)
        for conversation, kept_apart in plays
        for turn in range(workload.turns)
    )
    for sequence, (index, kept_apart) in enumerate(itertools.islice(indices, first_turn, None)):
        share = 1.0 if sequence else first_share
        yield Completion(
            model=model,
            prompt=prompts[index],
            output_tokens=max(1, round(prompts[index].output_tokens * share)),
            salt=f"{salt}-{kept_apart}",
            stream=stream,
            sequence=sequence,
            prompt_index=index,
            shortened=not sequence,
            dialect=dialect,
        )


def _alone(order: list[int], stream: int) -> Iterator[tuple[int, str]]:
    """All of `order` again and again, each time with another salt that no other stream has."""
    for play, conversation in enumerate(itertools.cycle(order)):
        yield conversation, f"{stream}-{play}"


def _dealt(count: int, seed: int, streams: int, stream: int) -> Iterator[tuple[int, str]]:
    """The hands of `stream`, another one in each round; the salt is that of the round.

    At most `count` streams play together. More of them make further tables, which share no salt.
    """
    table, seat = divmod(stream, count)
    players = min(count, streams - table * count)
    deck = random.Random(f"deal-{seed}-{streams}-{table}").sample(range(count), count)  # noqa: S311 - the same in every trial
    for played in itertools.count():
        for conversation in deck[(seat + played) % players :: players]:
            yield conversation, f"{table}.{played}"


def arrival_gaps_s(workload: Workload, streams: int, stream: int) -> Iterator[float]:
    """Seconds before each request of a stream of an open loop, without end: a Poisson process.

    Raises ValueError for a closed loop, in which requests do not arrive by the clock.
    """
    if workload.rate_per_stream is None:
        raise ValueError("a closed loop has no arrivals")
    rng = random.Random(f"arrivals-{workload.seed}-{streams}-{stream}")  # noqa: S311 - the same in every trial
    while True:
        yield rng.expovariate(workload.rate_per_stream)
