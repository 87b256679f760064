"""Names the failure of a trial server from all that is known of it: log, end, and what clients saw."""

from autotune.decide.failures.behaviour import name_behaviour, name_exhaustion, with_activity
from autotune.decide.failures.logscan import last_run, lines_of
from autotune.decide.failures.naming import name_event
from autotune.decide.failures.rootcause import VAGUE, Event
from autotune.decide.failures.rulebook import Rules
from autotune.decide.failures.signatures import Weight
from autotune.domain.failure import Evidence, Failure, FailureKind


def classify(evidence: Evidence, rules: Rules) -> Failure:
    """Kind, phase, blame, root line and cure of what `evidence` shows, which is taken to be a failure.

    Memory that certainly ran out comes before anything in the log. What the log says after it was told to
    stop proves nothing, and after autotune's own signal neither does the end of a process. The kind is
    `unknown`, with the exception that seems the cause, when no rule fits.
    """
    run, runs = last_run(lines_of(evidence.log), rules)
    if evidence.client_error:
        run.hear_client(evidence.client_error)
    finding = run.finding(runs)
    if exhausted := name_exhaustion(evidence, finding):
        return exhausted
    root = run.root(proven=True)
    if root is not None and _counts(root, evidence):
        return with_activity(name_event(root, served=evidence.served, ready=evidence.ready), evidence)
    return name_behaviour(evidence, finding)


def _counts(root: Event, evidence: Evidence) -> bool:
    """Whether the log's own explanation is better than what the behaviour of the process tells."""
    if evidence.aftermath.oom_kills and (root.rule is None or root.weight is Weight.CONSEQUENCE):
        return False
    if root.weight is Weight.CONSEQUENCE:
        # When autotune stops a server in the middle of its start, its parts lament each other's end.
        return not (evidence.stop_requested and root.rule and root.rule.confidence <= VAGUE)
    if root.weight is Weight.HINT and root.rule:
        return evidence.timed_out if root.rule.kind is FailureKind.STALL else evidence.exit_code is not None
    if root.fatal:
        return True
    if root.rule is None:  # a fault that was survived explains no deadline and no signal
        return not evidence.timed_out and evidence.exit_code is not None and evidence.exit_code >= 0
    return not evidence.timed_out
