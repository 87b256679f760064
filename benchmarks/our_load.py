"""Puts load on a server as `autotune run` does, for one point, and prints the times of its requests as JSON.

    python benchmarks/our_load.py URL STREAMS OUTPUT_TOKENS E2E_S

Started by `benchmarks/client.py`, which counts its processor time from outside: it is that of the whole
program, with prompts, guard, records and estimates.
"""

import json
import math
import sys
import time

from autotune.bench.load import LoadBench
from autotune.decide.request_times import tpot_s, ttft_s
from autotune.domain.interrupt import Interrupt
from autotune.domain.measurement import RequestState
from autotune.domain.workload import Lengths, Workload

_PROMPT_TOKENS = 32


def main() -> None:
    """Measure the point; ends the program with a sentence when a request failed."""
    url, streams, tokens, e2e_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    workload = Workload(
        prompt_tokens=Lengths.fixed(_PROMPT_TOKENS),
        output_tokens=Lengths.fixed(tokens),
        streams=(streams,),
        min_window_s=e2e_s,
        max_window_s=e2e_s,
    )
    bench = LoadBench("known-timing", workload, processes=1)
    measured = bench.measure(url, streams, e2e_s, Interrupt(time.monotonic, math.inf))
    if measured is None or measured.point.failed:
        sys.exit(f"requests failed: {measured.point.errors if measured else 'interrupted'}")
    # Of the first request of a stream the connection's opening is a part.
    done = [r for r in measured.requests if r.state is RequestState.DONE and r.sequence]
    requests = [[f"{r.stream}-{r.sequence}", ttft_s(r), tpot_s(r)] for r in done]
    print(json.dumps({"requests": requests, "flags": [flag.text for flag in measured.point.flags]}))


if __name__ == "__main__":
    main()
