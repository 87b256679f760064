"""The failure catalogue: the rules of `autotune/rules/vllm.toml` in words, by kind of failure, as HTML."""

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape

from autotune.decide.failures.signatures import Rule, Weight
from autotune.domain.failure import Blame, FailureKind
from autotune.files.rules import VLLM_RULES, read_rules

_KINDS: Mapping[FailureKind, tuple[str, str]] = {
    FailureKind.GPU_OOM: (
        "GPU memory ran out",
        "Weights, working memory, KV cache and CUDA graphs did not fit together.",
    ),
    FailureKind.KV_CACHE_TOO_SMALL: (
        "The KV cache is too small",
        "What the weights left is not enough for one request of the longest allowed length.",
    ),
    FailureKind.MEMORY_BUSY: (
        "Memory is taken by something else",
        "More was asked for than was free at that moment.",
    ),
    FailureKind.HOST_OOM: (
        "The machine's memory ran out",
        "The memory of the host or of its container, not that of the GPU.",
    ),
    FailureKind.BAD_FLAG: (
        "A setting is not known or not allowed",
        "vLLM refused the command line, or a value in it.",
    ),
    FailureKind.INCOMPATIBLE: (
        "Settings do not go together",
        "Each is allowed, but not with the others, or not with this model.",
    ),
    FailureKind.UNSUPPORTED: (
        "Not supported here",
        "This vLLM, this device or this model does not have what was asked for.",
    ),
    FailureKind.MODEL_ACCESS: (
        "The model cannot be had",
        "It is not there, access to it is refused, or its files are incomplete.",
    ),
    FailureKind.ENVIRONMENT: (
        "Something is wrong with the machine or the installation",
        "Drivers, libraries, ports, disks, processes.",
    ),
    FailureKind.STALL: ("The server hangs", "It lives, and does not get ready or does not answer."),
    FailureKind.ENGINE_CRASH: (
        "The engine crashed",
        "An assertion, an exception or a fault of the device inside vLLM.",
    ),
    FailureKind.CLIENT: ("A request was refused", "The server works, and what was sent to it is wrong."),
    FailureKind.SILENT: ("A setting had no effect", "The server works, but not as it was told to."),
    FailureKind.UNKNOWN: ("The cause is not in these lines", "They say that something ended, and not why."),
}
_BLAME: Mapping[Blame, str] = {
    Blame.CONFIGURATION: "the settings",
    Blame.ENVIRONMENT: "the machine at that moment",
    Blame.USER: "what was asked for as a whole",
    Blame.HARNESS: "autotune",
    Blame.UNKNOWN: "not certain",
}
_NAME = re.compile(r"\{(\w+)\}")


def failure_catalogue() -> str:
    """A section for each kind that has rules, with its rules in their order, then those that are no failures.

    The headings of kinds are Markdown, so that they are in the table of contents; all else is HTML.
    """
    rules = read_rules(VLLM_RULES).index.rules
    failures = [rule for rule in rules if rule.weight is not Weight.NOTICE]
    parts = [f"There are {len(rules)} rules; {len(failures)} of them name failures.", ""]
    for kind, (title, meaning) in _KINDS.items():
        parts += _section(title, f"`{kind}`. {meaning}", (rule for rule in failures if rule.kind is kind))
    notices = (rule for rule in rules if rule.weight is Weight.NOTICE)
    parts += _section("Worth telling, no failures", "A server that says this goes on.", notices)
    return "\n".join(parts)


def _section(title: str, meaning: str, rules: Iterable[Rule]) -> Iterator[str]:
    entries = [_entry(rule) for rule in rules]
    if entries:
        yield from (f"## {title}", "", meaning, "", *entries)


def _entry(rule: Rule) -> str:
    """One block of HTML without an empty line in it, which Markdown leaves as it is."""
    cure = f"<p><strong>What to do:</strong> {_template(rule.cure)}</p>" if rule.cure else ""
    facts = "; ".join(_facts(rule))
    return (
        f'<div class="rule"><h3 id="{escape(rule.id)}">{escape(rule.id)}</h3><p>{_template(rule.why)}</p>'
        f"{cure}<p><small>{facts}. Source: {escape(rule.source)}</small></p></div>\n"
    )


def _facts(rule: Rule) -> Iterator[str]:
    """What else is known of a rule, as HTML."""
    if rule.contains:
        yield f"Seen in a line with {_either(rule.contains)}"
    else:
        yield "Told by the log as a whole"
    if rule.any_frames:
        yield f"in the traceback {_either(sorted(rule.any_frames))}"
    if rule.phase:
        yield f"phase {_code(rule.phase)}"
    if rule.versions.since:
        yield f"from vLLM {'.'.join(map(str, rule.versions.since))} on"
    if rule.versions.before:
        yield f"before vLLM {'.'.join(map(str, rule.versions.before))}"
    if rule.weight is not Weight.NOTICE:
        yield f"to blame: {_BLAME[rule.blame]}"


def _either(texts: Iterable[str]) -> str:
    return " or ".join(map(_code, texts))


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _template(text: str) -> str:
    """A rule's text, with its optional parts, and with the names of values in place of the values."""
    plain = text.replace("[", "").replace("]", "")
    return _NAME.sub(r"<var>\1</var>", escape(plain, quote=False))
