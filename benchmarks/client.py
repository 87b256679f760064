"""What a token costs the load generator: autotune's own, `vllm bench serve` and guidellm, on one core.

    .venv/bin/python benchmarks/client.py [--json] [--guidellm PATH] [--vllm PATH]

All of them get the same answers from one server of known timing on another core. What counts is the user and
system time of all the client's processes from its first request to the last token. The cost of a token is the
difference of that between runs with long and with short answers, so that the requests' own cost cancels out.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from rivals import GUIDE, HERE, OURS, VLLM, Load, Rival, installed_guidellm, version, write_inputs
from spent import spend

_RATIO_STREAMS = 64
_TIMEOUT_S = 300.0
_REQUESTS_PER_STREAM = 2
_AFTER_S = 0.05
"""For the last tokens to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """6,400 tokens a second at each stream count: a client that takes 100 us for one needs 64 % of a core."""

    streams: int
    tick_ms: int
    short_tokens: int
    long_tokens: int


_SETTINGS = (
    Setting(streams=64, tick_ms=10, short_tokens=50, long_tokens=550),
    Setting(streams=256, tick_ms=40, short_tokens=13, long_tokens=138),
)
_SMOKE = (Setting(streams=64, tick_ms=10, short_tokens=5, long_tokens=45),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a client, and what it and the server say of it."""

    cpu_s: float
    tokens: int
    output: str
    sent: dict[str, dict[str, float]]
    """What the server says of each request, by the end of its salt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. The timing errors are those of the long answers of the last round."""

    client: str
    streams: int
    cpu_us_per_token: float | None
    rounds: list[float]
    ttft_error_p50_ms: float | None = None
    ttft_error_p99_ms: float | None = None
    tpot_error_p50: float | None = None
    """Relative, as the next."""
    tpot_error_p99: float | None = None
    why: str | None = None
    """Why there is no number."""


class Failed(Exception):
    """A client did not do what it was asked for."""


def main() -> None:
    """Run the benchmark and print the table, or one JSON object."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("the benchmark needs two processors: one for the server and one for the client")
    rivals, missing = _rivals(options.vllm, options.guidellm)
    settings, rounds = (_SMOKE, 1) if options.smoke else (_SETTINGS, options.rounds)
    about = {"machine": _machine(), "versions": _versions(rivals)}
    os.sched_setaffinity(0, {cores[0]})  # what is started from here on inherits it
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_inputs(folder, _REQUESTS_PER_STREAM * max(setting.streams for setting in settings))
        for setting in settings:
            with _serving(setting.tick_ms, cores[-1]) as url:
                rows += _measure(rivals, setting, rounds, url, folder)
    rows += [
        Row(client=name, streams=setting.streams, cpu_us_per_token=None, rounds=[], why=why)
        for name, why in missing.items()
        for setting in settings
    ]
    ratios = {name: _ratio(rows, name, _RATIO_STREAMS) for name in (VLLM, GUIDE)}
    if options.json:
        print(json.dumps({"ratios": ratios, "rows": [asdict(row) for row in rows], **about}))
    else:
        print(_table(rows, about))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a token costs the load generator.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--vllm", type=Path, help="the vllm program; default: the one beside this Python")
    parser.add_argument(
        "--guidellm", type=Path, help="the guidellm program; default: benchmarks/.venv has it"
    )
    parser.add_argument("--rounds", type=int, default=2, help="how often each client runs (default: 2)")
    parser.add_argument("--smoke", action="store_true", help="only see that it works; the numbers are noise")
    return parser.parse_args()


def _rivals(vllm: Path | None, guidellm: Path | None) -> tuple[list[Rival], dict[str, str]]:
    """The clients that are there, and why others are not."""
    beside = Path(sys.executable).parent  # not resolved: the environment is where its link is
    found: dict[str, Path | str] = {OURS: Path(sys.executable), VLLM: (vllm or beside / "vllm").absolute()}
    found[GUIDE] = guidellm.absolute() if guidellm else installed_guidellm()
    missing = {name: program for name, program in found.items() if isinstance(program, str)}
    for name, program in found.items():
        if isinstance(program, Path) and not program.exists():
            missing[name] = f"{program} does not exist"
    present = {n: p for n, p in found.items() if n not in missing and isinstance(p, Path)}
    return [Rival(name=n, program=p, counts_requests=n != OURS) for n, p in present.items()], missing


@contextmanager
def _serving(tick_ms: int, core: int) -> Iterator[str]:
    argv = [sys.executable, str(HERE / "timing_server.py"), "--tick-ms", str(tick_ms), "--core", str(core)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout is None or server.stdin is None:
            raise RuntimeError("the server has no pipes")
        yield server.stdout.readline().strip()
        server.stdin.close()


def _measure(rivals: Sequence[Rival], setting: Setting, rounds: int, url: str, folder: Path) -> list[Row]:
    """One row for each client; they take turns, each round in another order."""
    costs: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    errors: dict[str, dict[str, float]] = {}
    why: dict[str, str] = {}
    for number in range(rounds):
        first = number % len(rivals)
        for rival in (*rivals[first:], *rivals[:first]):
            if rival.name in why:
                continue
            try:
                short, long = (
                    _run(rival, setting, tokens, url, folder)
                    for tokens in (setting.short_tokens, setting.long_tokens)
                )
            except Failed as failure:
                why[rival.name] = str(failure)
                continue
            costs[rival.name].append((long.cpu_s - short.cpu_s) / (long.tokens - short.tokens) * 1e6)
            if rival.name == OURS:
                errors[rival.name] = _timing_errors(long)
    return [
        Row(
            client=rival.name,
            streams=setting.streams,
            cpu_us_per_token=statistics.median(costs[rival.name]) if rival.name not in why else None,
            rounds=costs[rival.name],
            why=why.get(rival.name),
            **errors.get(rival.name, {}),
        )
        for rival in rivals
    ]


def _run(rival: Rival, setting: Setting, tokens: int, url: str, folder: Path) -> Run:
    """Run a client once. Raises Failed when it fails or does not send what it was asked for."""
    load = Load(
        url=url,
        streams=setting.streams,
        tokens=tokens,
        requests=_REQUESTS_PER_STREAM * setting.streams,
        tick_s=setting.tick_ms / 1000,
    )
    httpx.get(f"{url}/stamps", trust_env=False)
    spent = spend(rival.argv(load, folder), rival.environment, folder, _TIMEOUT_S)
    stamps = httpx.get(f"{url}/stamps", trust_env=False).json()
    if spent is None:
        raise Failed(f"it was not over after {_TIMEOUT_S:.0f} s")
    if spent.status:
        last = spent.output.strip().splitlines()[-1:]
        raise Failed(f"it ended with status {spent.status}: {''.join(last)}")
    done = [r for r in stamps["requests"] if r["tokens"] == r["wanted_tokens"]]
    if rival.counts_requests and len(done) != load.requests:
        raise Failed(f"{len(done)} of {load.requests} requests were answered")
    begun = [r for r in stamps["requests"] if r["events"]]
    if not begun:
        raise Failed("no request was answered")
    begin_s, end_s = min(r["received_s"] for r in begun), max(r["last_s"] for r in begun)
    cpu_s = spent.between(begin_s, end_s + _AFTER_S)
    print(f"{rival.name}, {load.streams} streams, {tokens} tokens: {cpu_s:.2f} s of CPU", file=sys.stderr)
    return Run(
        cpu_s=cpu_s,
        tokens=sum(count for _, count in stamps["ticks"]),
        output=spent.output,
        sent={"-".join(r["salt"].split("-")[-2:]): r for r in done},
    )


def _timing_errors(run: Run) -> dict[str, float]:
    """Client against server: what each says of the time to the first token, and of that of a token."""
    ttft_ms: list[float] = []
    tpot: list[float] = []
    for key, client_ttft_s, client_tpot_s in json.loads(run.output)["requests"]:
        sent = run.sent[key]
        ttft_ms.append((client_ttft_s - (sent["first_s"] - sent["received_s"])) * 1e3)
        tpot.append(client_tpot_s * (sent["tokens"] - 1) / (sent["last_s"] - sent["first_s"]) - 1)
    return {
        "ttft_error_p50_ms": statistics.median(ttft_ms),
        "ttft_error_p99_ms": _p99(ttft_ms),
        "tpot_error_p50": statistics.median(tpot),
        "tpot_error_p99": _p99([abs(error) for error in tpot]),
    }


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1]


def _ratio(rows: Sequence[Row], other: str, streams: int) -> float | None:
    """Ours by theirs; None where either is missing."""
    costs = {row.client: row.cpu_us_per_token for row in rows if row.streams == streams}
    ours, theirs = costs.get(OURS), costs.get(other)
    return ours / theirs if ours is not None and theirs else None


def _machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }


def _versions(rivals: Sequence[Rival]) -> dict[str, str | None]:
    here = Path(sys.executable)
    packages = {"autotune": "vllm-autotune", "uvloop": "uvloop", "httptools": "httptools"}
    versions = {name: version(here, package) for name, package in packages.items()}
    programs = {rival.name: rival.program for rival in rivals}
    versions["vllm"] = version(programs[VLLM], "vllm") if VLLM in programs else None
    versions["guidellm"] = version(programs[GUIDE], "guidellm") if GUIDE in programs else None
    return {"python": platform.python_version(), **versions}


def _table(rows: Sequence[Row], about: dict[str, dict[str, object]] | dict[str, object]) -> str:
    """The rows as Markdown, as they are kept in benchmarks/README.md."""
    lines = [
        "| client | streams | CPU per token | rounds | ours / theirs | TTFT error p50, p99 | TPOT p50, p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = f"{row.cpu_us_per_token:.1f} us" if row.cpu_us_per_token is not None else row.why
        ratio = _ratio(rows, row.client, row.streams) if row.client != OURS else None
        ttft = tpot = ""
        if row.ttft_error_p50_ms is not None and row.tpot_error_p50 is not None:
            ttft = f"{row.ttft_error_p50_ms:.2f}, {row.ttft_error_p99_ms:.2f} ms"
            tpot = f"{row.tpot_error_p50:+.2%}, {row.tpot_error_p99:.2%}"
        rounds = ", ".join(f"{value:.1f}" for value in row.rounds)
        shown = "" if ratio is None else f"{ratio:.2f}"
        lines.append(f"| {row.client} | {row.streams} | {cost} | {rounds} | {shown} | {ttft} | {tpot} |")
    return "\n".join([*lines, "", *(f"{name}: {json.dumps(value)}" for name, value in about.items())])


if __name__ == "__main__":
    main()
