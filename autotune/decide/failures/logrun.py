"""One start of a server as its log tells it: how far it came, what ended it, what else is worth telling."""

from collections import OrderedDict
from dataclasses import replace

from autotune.decide.failures.logline import LogLine
from autotune.decide.failures.naming import name_event, name_refusals, without_secrets
from autotune.decide.failures.progress import Progress, phase_of
from autotune.decide.failures.rootcause import ENGINE_RANK, Event, Events, process_rank, root_of
from autotune.decide.failures.rulebook import Rules
from autotune.decide.failures.signatures import Match, Seen, Weight
from autotune.decide.failures.template import fill
from autotune.decide.failures.tracebacks import Trace
from autotune.domain.failure import FailureKind, LogFinding, Notice, Phase

TELLING = ("INFO", "", "WARNING")
"""Levels at which a server says that it starts or stops; an error never does."""
_QUIET = ("INFO", "DEBUG")
_MAX_SOURCES = 256
_NO_TRACE = Trace()


class Run:
    """One start of a server: everything its lines have said so far."""

    def __init__(self, rules: Rules, number: int) -> None:
        self.number = number
        self.lines = 0
        self.progress = Progress(rules)
        self.stopped = False
        """It was told to stop before anything had failed."""
        self._rules = rules
        self.events = Events()
        self._notices: dict[str, Notice] = {}
        self.traces: OrderedDict[tuple[str, str, str], Trace] = OrderedDict()
        self._ended = False
        self._closed = False

    @property
    def under_way(self) -> bool:
        """It has begun to work, or to fail: another start is another run."""
        return self._ended or self.progress.phase not in (Phase.ARGS, Phase.CONFIG)

    def read(self, number: int, line: LogLine) -> None:
        """Take in a line that stands at `number` in the log."""
        quiet = line.level in _QUIET
        if quiet or (not line.level and not line.body.startswith(" ")):  # a progress bar has no level
            self.progress.read(line.body)
        elif line.level == "WARNING":
            self.progress.read_warning(line.body)
        if line.level in TELLING and not self._closed and self._rules.signs.stops_run(line.body):
            # After its own death a server stops in the same words as after a signal.
            self._closed, self.stopped = True, not self._ended
        if self._closed or not line.body:
            return
        if quiet:
            if self._rules.index.knows_mild(line.body):
                self._match(number, line, _NO_TRACE, exception=None)
            return
        trace = self._trace(line)
        if not trace.feed(line.body, self._rules.signs):
            self._match(number, line, trace, exception=trace.head(line.body))

    def hear_client(self, error: str) -> None:
        """Take in what a client was told; the log need not hold it, and it proves no death of the server."""
        found = self._rules.index.match(error, error, "ERROR", self._seen(_NO_TRACE))
        if found and found.rule.weight is not Weight.NOTICE:
            event = self._event(0, LogLine("client", "", "ERROR", "", error), _NO_TRACE, found)
            self._keep(replace(event, fatal=False))

    def finding(self, runs: int) -> LogFinding:
        """What the log of this run alone says; `runs` is how many there are."""
        root = self.root(proven=False)
        named = name_event(root, served=self._served_before(root)) if root else None
        return LogFinding(
            failure=named or name_refusals(self.progress),
            phase=self.progress.phase,
            ready=self.progress.ready,
            served=self.progress.answered > 0,
            stopped=self.stopped,
            version=self.progress.version,
            lines=self.lines,
            run=self.number,
            runs=runs,
            notices=self.notices(root),
        )

    def root(self, *, proven: bool) -> Event | None:
        """The cause of the failure, None when there was none; `proven` as in `rootcause.root_of`."""
        events = self.events.all()
        if proven:
            end = LogLine("", "", "", "", "")
            hints = [found for found in self._at_end() if found.rule.weight is Weight.HINT]
            events += [self._event(0, end, _NO_TRACE, found) for found in hints]
        else:
            events = [e for e in events if e.weight is not Weight.HINT]
        return root_of(events, self._rules.index.order, proven=proven or self._requests_fail(events))

    def notices(self, root: Event | None) -> tuple[Notice, ...]:
        """What is worth telling beside the failure `root`, each rule once."""
        at_end = [found for found in self._at_end() if found.rule.weight is Weight.NOTICE]
        named = root.rule.id if root and root.rule else None
        told = (*self._notices.values(), *(self._notice(found) for found in at_end))
        return tuple(notice for notice in told if notice.rule != named)

    def _served_before(self, root: Event) -> bool:
        """Whether a completion was answered before `root`.

        A stream has its status 200 before it has an answer, so the only one may be what the engine died of.
        """
        crashed = root.rule is not None and root.rule.fatal
        at_work = crashed or (bool(root.frames) and root.rank <= ENGINE_RANK)
        unanswered = 1 if at_work and self.progress.failed == 0 else 0
        return self.progress.answered > unanswered

    def _at_end(self) -> list[Match]:
        return self._rules.index.at_end(self._seen(_NO_TRACE))

    def _requests_fail(self, events: list[Event]) -> bool:
        progress = self.progress
        if progress.refused + progress.failed > progress.answered:
            return True
        return progress.answered == 0 and any(e.rule and e.rule.kind is FailureKind.CLIENT for e in events)

    def _trace(self, line: LogLine) -> Trace:
        """The traceback that the source of `line` is in; the source longest silent is forgotten."""
        key = (line.process, line.pid, line.origin)
        trace = self.traces.pop(key, None) or Trace()
        self.traces[key] = trace
        if len(self.traces) > _MAX_SOURCES:
            self.traces.popitem(last=False)
        return trace

    def _seen(self, trace: Trace) -> Seen:
        progress = self.progress
        return Seen(
            functions=trace.functions if trace.message else (),
            values=progress.values,
            version=progress.version,
            phase=progress.phase,
        )

    def _match(self, number: int, line: LogLine, trace: Trace, exception: str | None) -> None:
        """Keep what `line` says, when a rule knows it or it is an exception."""
        context = trace.message or line.body
        found = self._rules.index.match(line.body, context, line.level, self._seen(trace))
        if found and found.rule.weight is Weight.NOTICE:
            self._notices.setdefault(found.rule.id, self._notice(found, line.body, number))
        elif found or (exception and exception.rpartition(".")[2] not in self._rules.signs.no_failures):
            self._keep(self._event(number, line, trace, found))

    def _keep(self, event: Event) -> None:
        self.events.add(event)
        if event.weight is Weight.CONSEQUENCE or (event.weight is Weight.ROOT and event.fatal):
            self._ended = True
        elif event.rule and event.rule.id not in self._notices:
            found = Match(rule=event.rule, numbers=event.numbers)
            self._notices[event.rule.id] = self._notice(found, event.line, event.line_number)

    def _notice(self, found: Match, line: str | None = None, number: int | None = None) -> Notice:
        why = fill(found.rule.why, {**self.progress.values, **found.numbers})
        line = without_secrets(line) if line else None
        return Notice(rule=found.rule.id, why=without_secrets(why), line=line, line_number=number)

    def _event(self, number: int, line: LogLine, trace: Trace, found: Match | None) -> Event:
        in_traceback = bool(trace.message)
        rank = process_rank(line.process, line.origin)
        source, alone = f"{line.process} {line.pid} {line.origin}", (f"line {number}", 0)
        return Event(
            line_number=number,
            line=line.body.strip(),
            message=trace.message or line.body,
            process=line.process,
            rank=rank,
            chain=(source, trace.chain) if in_traceback else alone,
            exception=(f"{source} message", trace.message_number) if in_traceback else alone,
            fatal=_is_fatal(line, trace, found, rank),
            phase=self.progress.phase,
            frame_phase=phase_of(trace.functions, self._rules) if in_traceback else None,
            frames=tuple(trace.frames) if in_traceback else (),
            source_line=trace.source_line if in_traceback else "",
            rule=found.rule if found else None,
            numbers=found.numbers if found else {},
            values={**self.progress.values, **found.numbers} if found else {},
        )


def _is_fatal(line: LogLine, trace: Trace, found: Match | None, rank: float) -> bool:
    """Whether a process ended over what `line` says, by what the rule says of it or by where it stands."""
    if found and found.rule.fatal is not None:
        return found.rule.fatal
    if trace.survived:
        return False
    if not line.level:  # Python itself printed it, not a logger
        return trace.complete or found is not None
    # The engine and its workers log no errors that they survive, only excerpts lack the line that says so.
    return trace.fatal or (found is not None and rank <= ENGINE_RANK and line.level in ("ERROR", "CRITICAL"))
