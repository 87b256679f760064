"""How fast a configuration is in truth: memory traffic against arithmetic, and what the host adds."""

import numpy as np

from search_sim import knobs
from search_sim.knobs import Column, Columns
from search_sim.machine import Load
from search_sim.truth import Truth


def rate(truth: Truth, rows: Columns, streams: int) -> Column:
    """Output tokens a second with so many streams in a closed loop, where it works at all."""
    load = truth.load
    drafts = np.where(rows[knobs.METHOD] == knobs.OFF, 0.0, rows[knobs.DRAFTS])
    room = np.maximum(truth.room_gib(rows), 0.0) / truth.kv_token_gib(rows) / load.context
    wanted = np.minimum(streams, rows[knobs.SEQS])
    batch = np.minimum(wanted, np.maximum(room, 0.9))
    step = _step_s(truth, rows, batch, drafts)
    fixed = _fixed_s(truth, rows)
    prompts = _prompts_s(truth, rows, batch, fixed)
    per_step = _tokens_per_step(load, rows, drafts)
    total = load.output / per_step * step + prompts
    preempted = np.where(room < wanted, 0.92, 1.0)
    found: Column = batch * load.output / total * preempted
    return found


def _speed(truth: Truth, rows: Columns) -> tuple[Column, Column]:
    """Bandwidth in GiB/s and arithmetic in FLOP/s; on a CPU they depend on the threads."""
    device = truth.device
    ones = np.ones_like(rows[knobs.SEQS])
    if not device.on_cpu:
        return device.bandwidth_gib_s * ones, device.tflops * 1e12 * ones
    auto = rows[knobs.BIND] == 0
    threads = np.where(auto, device.cores - 1, np.minimum(rows[knobs.THREADS], device.cores))
    # The server's other processes want a core; threads that are bound to none wander a little.
    crowded = np.where(threads >= device.cores, 0.82, 1.0) * np.where(auto, 1.0, 1.03)
    share = threads / device.cores
    return device.bandwidth_gib_s * np.minimum(1.0, 1.8 * share) * crowded, (
        device.tflops * 1e12 * share * crowded
    )


def _fixed_s(truth: Truth, rows: Columns) -> Column:
    """What a step costs whatever is in its batch: weights, offloaded ones too, and the host."""
    device = truth.device
    bandwidth, _ = _speed(truth, rows)
    read = truth.weights_gib(rows) / bandwidth
    fetched = 0.0 * read if device.on_cpu else rows[knobs.OFFLOAD] / device.pcie_gib_s
    # Left to vLLM (2), scheduling is asynchronous unless drafts are looked up in the text.
    ahead = (rows[knobs.ASYNC] == 1) | ((rows[knobs.ASYNC] == 2) & (rows[knobs.METHOD] != knobs.NGRAM))
    host = device.host_step_s * np.where(ahead, 1 - truth.load.async_saves, 1.0)
    if not device.on_cpu:
        threads = rows[knobs.THREADS]
        host = host * (1 + 0.6 / threads) + 1e-4 * np.maximum(0, threads - device.cores)
    host = host * (1 + truth.load.prefix_costs * rows[knobs.PREFIX])
    total: Column = read + fetched + host + device.eager_step_s * rows[knobs.EAGER]
    return total


def _step_s(truth: Truth, rows: Columns, batch: Column, drafts: Column) -> Column:
    load = truth.load
    bandwidth, flops = _speed(truth, rows)
    backend = np.take(np.array(load.backend_costs), rows[knobs.BACKEND].astype(int))
    cache = batch * load.context * truth.kv_token_gib(rows) / bandwidth * backend
    cache = cache * np.where(rows[knobs.KV_DTYPE] == 1, 1 + 2 * load.fp8_costs, 1.0)
    work = batch * (drafts + 1) * 2 * load.params / flops
    read = truth.weights_gib(rows) / bandwidth + cache
    # A smooth maximum: near the ridge of the roofline both count.
    roof = np.power(read**4 + work**4, 0.25) + (_fixed_s(truth, rows) - truth.weights_gib(rows) / bandwidth)
    mtp = rows[knobs.METHOD] == knobs.MTP
    draft_s = drafts * (load.mtp_gib / bandwidth * 1.3 + 2e-4)
    drafting = np.where(mtp, draft_s, np.where(rows[knobs.METHOD] == knobs.NGRAM, 2.5e-4, 0.0))
    fp8 = np.where(rows[knobs.KV_DTYPE] == 1, 1 + load.fp8_costs, 1.0)
    total: Column = (roof + drafting + batch * 2e-5) * fp8
    return total


def _prompts_s(truth: Truth, rows: Columns, batch: Column, fixed: Column) -> Column:
    """Reading the prompts of one batch."""
    load = truth.load
    _, flops = _speed(truth, rows)
    left = load.prompt * np.where(rows[knobs.PREFIX] == 1, 1 - load.prefix_hits, 1.0)
    efficiency = rows[knobs.BATCHED] / (rows[knobs.BATCHED] + 600.0)
    work = batch * left * 2 * load.params / flops / efficiency
    work = work * np.where(rows[knobs.METHOD] == knobs.MTP, 1.08, 1.0)
    chunks = np.maximum(1.0, batch * left / rows[knobs.BATCHED])
    total: Column = (work + chunks * fixed) * np.where(rows[knobs.CHUNKED] == 0, 0.97, 1.0)
    return total


def _tokens_per_step(load: Load, rows: Columns, drafts: Column) -> Column:
    distance = (rows[knobs.LOOKUP] - load.ngram_lookup) / 4.0
    ngram = load.ngram_accepts * np.exp(-(distance**2))
    accepts = np.where(rows[knobs.METHOD] == knobs.MTP, load.mtp_accepts, ngram)
    accepts = np.where(rows[knobs.METHOD] == knobs.OFF, 0.0, accepts)
    expected: Column = (1 - accepts ** (drafts + 1)) / (1 - accepts)
    return expected
