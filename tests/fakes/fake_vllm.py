"""A stand-in for the `vllm` command: a real process with vLLM's flags, log lines, child process and HTTP.

    python -S -I fake_vllm.py serve MODEL --host 127.0.0.1 --port 8000 --max-num-seqs 64 --enforce-eager
    python -S -I fake_vllm.py --version

The script `vllm` beside this file is the same as one executable. Standard library only; it is ready about
0.1 s after it was started. Any flag is accepted, except `--nope` and those in `unknown_flags`.

How it behaves is a scenario: a preset's name or an object of settings (`vllm_fake/scenario.py` lists both;
`{"preset": NAME, ...}` changes single settings of a preset). It comes from two environment variables:

    FAKE_VLLM_SCENARIO='"slow"'                          for every start
    FAKE_VLLM_SCENARIO='{"ttft_s": 0.1, "tpot_s": 0.02}'
    FAKE_VLLM_RULES='[{"if": {"max_num_seqs": ">64"}, "scenario": "kv_too_small"},
                      {"if": {"enforce_eager": true, "env.OMP_NUM_THREADS": 2}, "scenario": "slow"}]'

The first rule whose conditions all hold is laid over FAKE_VLLM_SCENARIO, so the configurations of one study
can behave differently. A condition names a flag with underscores (`speculative_config.num_speculative_tokens`
for a key of a JSON flag, `env.NAME` for a variable) and gives a value to equal or a text like ">64", "<=2",
"!=auto". `--no-x` is `x: false`; flags that are not given have the values in `scenario.FLAG_DEFAULTS`, or
null. A rule with `"once": PATH` holds only as long as there is no such file, and makes it.

What it measures like, without further settings: `ttft_s` after its turn, then one token every `tpot_s`; at
most `--max-num-seqs` requests run at a time and the others wait; `--enforce-eager` makes a token take twice
as long; `--speculative-config` gives several tokens an event. Every process ends by itself after
`lifetime_s`, so a failing test leaves nothing for long.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (`pathlib` is slow to import)

from vllm_fake import program

if __name__ == "__main__":
    program.main(sys.argv[1:])
