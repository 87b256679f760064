"""How one start of the fake vLLM behaves: settings, presets and the rules that choose between them."""

import json
import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

FLAG_DEFAULTS: dict[str, object] = {
    "host": "127.0.0.1",
    "port": 8000,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "max_model_len": 8192,
    "gpu_memory_utilization": 0.92,
    "enable_prefix_caching": True,
    "enforce_eager": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All settings; the defaults are a server that works."""

    # Start
    start_s: float = 0.05
    """Until it listens; the port is bound at once, as vLLM does."""
    start_error: str | None = None
    """After `start_s` die of: kv_too_small, gpu_oom, bad_value (a name in `log.START_ERRORS`)."""
    kv_cache_tokens: int | None = None
    """A `--max-model-len` above this dies of kv_too_small, and the log names this as the longest possible."""
    recorded_log: str | None = None
    """After `start_s` print this file and exit with `exit_code`."""
    exit_code: int = 1
    """Of a failed start."""
    log_bytes: int = 0
    """Print this much before anything else."""
    health_status: int = 200
    unknown_flags: tuple[str, ...] = ("nope",)

    # Speed
    ttft_s: float = 0.02
    """From the moment a request gets its turn to its first token."""
    prefill_s_per_token: float = 0.0
    """Added to `ttft_s` for each prompt token."""
    tpot_s: float = 0.005
    batch_penalty: float = 0.0
    """Each further running request adds this share to `tpot_s`."""
    eager_factor: float = 2.0
    acceptance: float = 0.5
    """Share of draft tokens accepted: an event carries 1 + floor(acceptance * num_speculative_tokens)."""

    # Answers
    texts: tuple[str, ...] = (" alpha", " beta", " gamma", " delta")
    """Texts of the tokens, in turn."""
    eos_after_tokens: int | None = None
    """Stop by itself after this many, unless the request says `ignore_eos`."""
    chop_bytes: int | None = None
    """Write the body of a stream in pieces of this size."""
    omit_usage: bool = False

    # Failures while serving
    http_status: int = 200
    """Answer every completion with this."""
    die_at_request: int | None = None
    """At this completion request (1 is the first) the engine dies: HTTP 500, an error event in the streams
    under way, then the server exits with 0."""
    die_signal: int | None = None
    """With `die_at_request`: the server itself dies of this signal instead, without a word."""
    hang_after_tokens: int | None = None
    """Streams send nothing more after this many tokens."""
    error_after_tokens: int | None = None
    """Streams end with an error event after this many tokens."""
    truncate_after_tokens: int | None = None
    """The connection is closed after this many tokens."""

    # Stop
    ignore_sigterm: bool = False
    grandchild: str | None = None
    """Another process: `group` ignores SIGTERM in the server's group; `session` leads a session of its own;
    `scrubbed` also has a new title and an empty environment; `hidden` also has the log closed;
    `late` starts such a `session` process only when it gets SIGTERM;
    `shared_memory` holds a segment in /dev/shm, whose name it logs, as vLLM's processes do;
    `foreign` is not the server's at all, holds its port and answers there until 1 s after the server's
    end."""
    lifetime_s: int = 300


PRESETS: dict[str, dict[str, object]] = {
    "normal": {},
    "slow_start": {"start_s": 1.5},
    "never_ready": {"start_s": 3600},
    "unhealthy": {"health_status": 503},
    "slow": {"ttft_s": 0.5, "tpot_s": 0.05},
    "kv_too_small": {"start_error": "kv_too_small"},
    "gpu_oom": {"start_error": "gpu_oom"},
    "bad_value": {"start_error": "bad_value"},
    "dies_at_first_request": {"die_at_request": 1},
    "dies_mid_load": {"die_at_request": 20},
    "killed_mid_load": {"die_at_request": 20, "die_signal": 9},
    "hangs_mid_stream": {"hang_after_tokens": 3},
    "error_event": {"error_after_tokens": 3},
    "truncated_stream": {"truncate_after_tokens": 3},
    "http_500": {"http_status": 500},
    "ignores_sigterm": {"ignore_sigterm": True},
    "grandchild_ignores_sigterm": {"grandchild": "group"},
    "grandchild_own_session": {"grandchild": "session"},
    "grandchild_scrubbed": {"grandchild": "scrubbed"},
    "grandchild_hidden": {"grandchild": "hidden"},
    "grandchild_late": {"grandchild": "late"},
    "port_taken": {"grandchild": "foreign"},
    "floods": {"log_bytes": 5_000_000},
}

_ORDER: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def parse_flags(words: list[str]) -> dict[str, object]:
    """Flags by name with underscores; values as JSON where they can be read so, else as text."""
    flags = dict(FLAG_DEFAULTS)
    at = 0
    while at < len(words):
        word, equals, text = words[at].partition("=")
        at += 1
        values = [text] if equals else []
        while not equals and at < len(words) and not re.match(r"--?[a-zA-Z]", words[at]):
            values.append(words[at])
            at += 1
        name = word.lstrip("-").replace("-", "_")
        if not values:
            flags[name.removeprefix("no_")] = not name.startswith("no_")
        else:
            read = [_value(value) for value in values]
            flags[name] = read[0] if len(read) == 1 else read
    return flags


def choose(flags: Mapping[str, object], environ: Mapping[str, str]) -> Scenario:
    """The scenario for these flags. Raises ValueError or TypeError for one that is not understood."""
    settings = _settings(json.loads(environ.get("FAKE_VLLM_SCENARIO", "{}")))
    for rule in json.loads(environ.get("FAKE_VLLM_RULES", "[]")):
        if "once" in rule and os.path.exists(rule["once"]):  # noqa: PTH110
            continue
        if all(_holds(_look_up(name, flags, environ), wanted) for name, wanted in rule["if"].items()):
            settings |= _settings(rule["scenario"])
            if "once" in rule:
                open(rule["once"], "w").close()  # noqa: PTH123
            break
    unknown = settings.keys() - {field.name for field in fields(Scenario)}
    if unknown:
        raise ValueError(f"no such scenario setting: {', '.join(sorted(unknown))}")
    return Scenario(**{name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()})


def _settings(spec: str | dict[str, object]) -> dict[str, object]:
    if isinstance(spec, str):
        spec = {"preset": spec}
    preset = spec.get("preset", "normal")
    if preset not in PRESETS:
        raise ValueError(f"no such scenario: {preset}")
    return PRESETS[preset] | {name: value for name, value in spec.items() if name != "preset"}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _look_up(name: str, flags: Mapping[str, object], environ: Mapping[str, str]) -> object:
    first, *keys = name.split(".")
    if first == "env":
        text = environ.get(keys[0])
        return None if text is None else _value(text)
    found = flags.get(first)
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _holds(found: object, wanted: object) -> bool:
    if isinstance(wanted, str):
        if wanted.startswith("!="):
            return found != _value(wanted[2:])
        if match := re.match(r"([<>]=?)", wanted):
            is_number = isinstance(found, int | float) and not isinstance(found, bool)
            return is_number and _ORDER[match[1]](found, float(wanted[match.end() :]))
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
