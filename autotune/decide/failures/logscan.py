"""Reads a server's log once, line by line, and says what failed in it; needs nothing but the log.

Memory is bounded whatever the log: a line is cut at 4 kB, of each sort of event the first few are kept, of
each source of lines one traceback. Work is proportional to the length (see `failures.signatures`).
"""

from collections.abc import Iterable, Iterator

from autotune.decide.failures.logline import parse
from autotune.decide.failures.logrun import TELLING, Run
from autotune.decide.failures.rulebook import Rules
from autotune.domain.failure import LogFinding


def scan(lines: Iterable[str], rules: Rules) -> LogFinding:
    """What `lines` say of the last start of the server in them; of the one before that failed, if the last
    has neither failed nor become ready (a container that restarts in a loop).

    Carriage returns, colours and the prefixes of docker, kubernetes and journald are no obstacle.
    """
    run, runs = last_run(lines, rules)
    return run.finding(runs)


def lines_of(text: str) -> Iterator[str]:
    """The lines of `text`, ended by line feeds alone, as editors and `grep -n` count them."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    if start < len(text):
        yield text[start:]


def last_run(lines: Iterable[str], rules: Rules) -> tuple[Run, int]:
    """The run that `scan` is about, and how many runs there are."""
    current, failed, number = Run(rules, 1), None, 0
    for number, raw in enumerate(lines, start=1):
        for line in parse(raw):
            if line.level in TELLING and current.under_way and rules.signs.starts_run(line.body):
                failed = current if current.root(proven=False) else failed
                current = Run(rules, current.number + 1)
            current.read(number, line)
    runs = current.number
    if failed is not None and not current.progress.ready and current.root(proven=False) is None:
        current = failed
    current.lines = number
    return current, runs
