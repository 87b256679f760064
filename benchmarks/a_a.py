"""Finals of a configuration against itself, on real servers: how often do they claim a difference?

In each of `LOOKS[0]` blocks the baseline and a copy of it are launched once, in an order drawn for the block.
The copy differs in a variable that vLLM does not know, so whatever the finals claim is false. They spend 2 %
on their first look: of 20 pairs none or one should be claimed.

Run it on a machine where nothing else happens; a pair takes six launches:

    .venv/bin/python benchmarks/a_a.py MODEL --pairs 20 --db a-a.db --json
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path

from autotune.cli.progress import RunView
from autotune.decide.blocks import BASELINE, LOOKS, alpha_of, block_model
from autotune.decide.noise import noise_of
from autotune.decide.ranking import score
from autotune.decide.student import t_cdf
from autotune.domain.interrupt import Interrupt
from autotune.domain.objective import Objective
from autotune.domain.space import Configuration
from autotune.domain.trial import Origin, Proposal, TrialRecord
from autotune.wiring.open import open_store
from autotune.wiring.prepare import PreparedStudy, RunRequest, prepare_study
from autotune.wiring.run import begin_or_continue, loop_of

SPACE = """
schema = 1
name = "a-a"
[parameters]
copy = {{ type = "int", low = 1, high = {pairs}, env = "A_A_COPY" }}
[fixed.flags]
enforce-eager = true
max-model-len = 2048
{flags}
"""
STUDY = """
schema = 1
name = "a-a"
objectives = ["out_tok_s@{high}", "out_tok_s@1"]
[workload]
prompt_tokens = {{ min = 48, max = 80 }}
output_tokens = {{ min = 24, max = 40 }}
streams = [1, {high}]
prompts = 32
min_window_s = {window_s}
max_window_s = {window_s}
"""
"""Short, because what is tested is the comparison, and any window has some noise to be seen through."""


_PAIR_S = 1800.0
"""What the last pair may take at most."""


def main() -> None:
    """Launch the pairs that are not in the file yet, and report on all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--streams", type=int, default=8, help="the larger stream count, beside 1")
    parser.add_argument("--window-s", type=float, default=4.0)
    parser.add_argument("--flag", action="append", default=[], metavar="'NAME = VALUE'", help="TOML, fixed")
    parser.add_argument("--db", default="a-a.db")
    parser.add_argument("--vllm", help="the vLLM to run")
    parser.add_argument("--minutes", type=float, default=120.0, help="stop after that, at a whole pair")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_study(_request(options, Path(folder)))
        records = _launch_pairs(prepared, options.pairs, options.minutes * 60)
    report = _report(records, prepared)
    print(json.dumps(report, indent=1) if options.json else _table(report))


def _request(options: argparse.Namespace, folder: Path) -> RunRequest:
    space, study = folder / "space.toml", folder / "study.toml"
    space.write_text(SPACE.format(pairs=options.pairs, flags="\n".join(options.flag)))
    study.write_text(STUDY.format(high=options.streams, window_s=options.window_s))
    return RunRequest(
        model=options.model,
        begun_s=time.monotonic(),
        study=str(study),
        space=str(space),
        database=options.db,
        vllm=options.vllm,
    )


def _launch_pairs(prepared: PreparedStudy, pairs: int, time_s: float) -> Sequence[TrialRecord]:
    """Launch what is not in the file yet; all records of whole pairs."""
    end_s = time.monotonic() + time_s
    with open_store(prepared.url, create=True) as store:
        begin_or_continue(store, prepared)
        store.begin_run(time_s, datetime.now(UTC))
        interrupt = Interrupt(time.monotonic, end_s + _PAIR_S)
        with RunView(prepared.spec.objectives, interrupt) as view:
            loop = loop_of(prepared, store, view, interrupt)
            loop.reconcile()
            have = {(r.block, r.configuration.digest) for r in store.records()}
            for block, order in _plan(pairs):
                if block % LOOKS[0] == 0 and time.monotonic() > end_s:
                    break
                for configuration in order:
                    if (block, configuration.digest) not in have:
                        loop.trial(Proposal(configuration=configuration, origin=Origin.FINAL, block=block))
        return store.records()


def _plan(pairs: int) -> Iterator[tuple[int, Sequence[Configuration]]]:
    """Block and launches: the first of a pair's blocks in a drawn order, the others by turns."""
    for pair in range(1, pairs + 1):
        both = [Configuration(), Configuration(values={"copy": pair})]
        random.Random(pair).shuffle(both)  # noqa: S311 - reproducible on purpose
        for n in range(LOOKS[0]):
            yield (pair - 1) * LOOKS[0] + n, both if n % 2 == 0 else both[::-1]


def _report(records: Sequence[TrialRecord], prepared: PreparedStudy) -> dict[str, object]:
    objectives = prepared.spec.objectives
    copies = sorted({c for r in records if isinstance(c := r.configuration.values.get("copy"), int)})
    pairs = [row for copy in copies if (row := _pair(records, copy, objectives)) is not None]
    noise = noise_of(records, lambda record: score(record, objectives))
    machine = prepared.environment.machine
    return {
        "machine": f"{machine.cpu_model}, {len(machine.cpu_ids)} CPUs, {[g.name for g in machine.gpus]}",
        "vllm": prepared.environment.vllm.version,
        "model": prepared.spec.model,
        "launches": len(records),
        "failed": sum(record.failure is not None for record in records),
        "noise_sd": noise and noise.sd_log,
        "pairs": pairs,
        "claimed": sum(bool(pair["claimed"]) for pair in pairs),
        "regrouped": _regrouped(records, objectives),
        "p_below_0.05": sum(pair["p"] < 0.05 for pair in pairs if isinstance(pair["p"], float)),
    }


def _pair(
    records: Sequence[TrialRecord], copy: int, objectives: Sequence[Objective]
) -> dict[str, float | bool | int] | None:
    """What the finals of one pair say; None while it is not whole."""
    blocks = {r.block for r in records if r.configuration.values.get("copy") == copy}
    own = [record for record in records if record.block in blocks]
    model = block_model(own, lambda record: score(record, objectives))
    digest = Configuration(values={"copy": copy}).digest
    difference = model.difference(BASELINE, digest)
    if difference is None or model.count(BASELINE, digest) < LOOKS[0]:
        return None
    logs = [block[digest] - block[BASELINE] for block in model.blocks]
    t = statistics.fmean(logs) / (statistics.stdev(logs) / len(logs) ** 0.5)
    return {
        "pair": copy,
        "ratio": difference.ratio,
        "low": difference.interval.low,
        "high": difference.interval.high,
        "claimed": difference.is_distinguishable,
        "p": 2 * (1 - t_cdf(abs(t), len(logs) - 1)),
    }


def _regrouped(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> dict[str, int]:
    """How often finals of any three of the blocks would claim a difference, whichever of a block is the copy.

    All launches are of one configuration, so each of these could have been a pair. They are not independent,
    but there are many of them: the noise is that of the machine, not one that was assumed.
    """
    copy = Configuration(values={"copy": 1})
    both: dict[int | None, list[TrialRecord]] = defaultdict(list)
    for record in records:
        both[record.block].append(record)
    whole = [sorted(pair, key=_is_copy) for _, pair in sorted(both.items(), key=str) if len(pair) == 2]
    cases = claimed = 0
    for blocks in combinations(whole, LOOKS[0]):
        for swaps in product((False, True), repeat=LOOKS[0] - 1):
            own = []
            for number, (pair, swap) in enumerate(zip(blocks, (False, *swaps), strict=True)):
                roles = (copy, Configuration()) if swap else (Configuration(), copy)
                own += [replace(r, block=number, configuration=c) for r, c in zip(pair, roles, strict=True)]
            model = block_model(own, lambda record: score(record, objectives))
            difference = model.difference(BASELINE, copy.digest)
            cases += 1
            claimed += difference is not None and difference.is_distinguishable
    return {"cases": cases, "claimed": claimed}


def _is_copy(record: TrialRecord) -> bool:
    return bool(record.configuration.values)


def _table(report: dict[str, object]) -> str:
    pairs = report["pairs"]
    lines = [f"{'pair':>4}  {'ratio':>6}  interval at {100 * (1 - alpha_of(LOOKS[0])):.0f} %     p"]
    if isinstance(pairs, list):
        lines += [
            f"{p['pair']:>4}  {p['ratio']:.3f}  {p['low']:.3f} to {p['high']:.3f}  {p['p']:.3f}"
            f"{'  CLAIMED' if p['claimed'] else ''}"
            for p in pairs
        ]
    facts = {name: value for name, value in report.items() if name != "pairs"}
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in facts.items())])


if __name__ == "__main__":
    main()
