"""What a log does not say is told from how the process behaved; what the log says comes first."""

from dataclasses import replace

import pytest
from failure_logs import LOGS, QUIET, Known, Snippet, render

from autotune.decide.failures.classify import classify
from autotune.domain.failure import Blame, Failure, FailureKind, Phase
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)


def quiet(at: str) -> str:
    """The log of a server that came as far as `at` and said nothing wrong."""
    return render(replace(QUIET, at=at))


def told(at: str, known: Known) -> tuple[FailureKind, Phase, Blame]:
    failure = classify(known.with_log(quiet(at)), RULES)
    assert failure.rule is None
    assert failure.confidence < 1
    assert failure.why
    return failure.kind, failure.phase, failure.blame


def recorded(name: str, known: Known) -> Failure:
    return classify(known.with_log((LOGS / name).read_text()), RULES)


@pytest.mark.parametrize(
    ("code", "kind", "blame"),
    [
        (-9, FailureKind.HOST_OOM, Blame.UNKNOWN),
        (137, FailureKind.HOST_OOM, Blame.UNKNOWN),
        (-7, FailureKind.HOST_OOM, Blame.ENVIRONMENT),
        (-6, FailureKind.ENGINE_CRASH, Blame.CONFIGURATION),
        (-11, FailureKind.ENGINE_CRASH, Blame.CONFIGURATION),
        (139, FailureKind.ENGINE_CRASH, Blame.CONFIGURATION),
        (-15, FailureKind.ENVIRONMENT, Blame.ENVIRONMENT),
        (127, FailureKind.ENVIRONMENT, Blame.ENVIRONMENT),
        (1, FailureKind.UNKNOWN, Blame.UNKNOWN),
        (0, FailureKind.UNKNOWN, Blame.UNKNOWN),
    ],
)
def test_the_way_it_ended_while_it_loaded(code: int, kind: FailureKind, blame: Blame) -> None:
    assert told("weights", Known(exit_code=code)) == (kind, Phase.WEIGHTS, blame)


def test_exit_code_2_without_a_word_is_a_command_line() -> None:
    refused = (FailureKind.BAD_FLAG, Phase.ARGS, Blame.CONFIGURATION)
    assert told("args", Known(exit_code=2)) == refused
    assert told("weights", Known(exit_code=2))[0] is FailureKind.UNKNOWN


def test_exit_code_0_is_no_success() -> None:
    known = Known(exit_code=0, ready=True, served=True)
    assert told("serving", known) == (FailureKind.ENGINE_CRASH, Phase.SERVING, Blame.UNKNOWN)


@pytest.mark.parametrize("at", ["device", "weights", "profile", "kv_cache", "graphs"])
def test_a_deadline_is_a_stall_in_the_phase_it_came_to(at: str) -> None:
    stall = (FailureKind.STALL, Phase(at), Blame.UNKNOWN)
    assert told(at, Known(timed_out=True)) == stall
    # autotune has ended it by then, so how it ended says nothing.
    assert told(at, Known(timed_out=True, stop_requested=True, exit_code=-9)) == stall


def test_a_server_that_is_silent_to_a_client_stalls() -> None:
    known = Known(ready=True, served=True, client_error="the server sent nothing for 120 s")
    assert told("serving", known) == (FailureKind.STALL, Phase.SERVING, Blame.UNKNOWN)


def test_a_refused_request_is_the_clients() -> None:
    known = Known(ready=True, client_error="HTTP 400: logprobs are not allowed here")
    assert told("first_request", known) == (FailureKind.CLIENT, Phase.FIRST_REQUEST, Blame.USER)


def test_an_unexplained_error_of_the_first_request_stays_unknown() -> None:
    known = Known(ready=True, client_error="HTTP 500: oh")
    assert told("first_request", known) == (FailureKind.UNKNOWN, Phase.FIRST_REQUEST, Blame.UNKNOWN)
    assert "HTTP 500: oh" in classify(known.with_log(quiet("first_request")), RULES).why


def test_how_it_ended_proves_nothing_after_our_own_signal() -> None:
    assert told("weights", Known(exit_code=-9, stop_requested=True))[0] is FailureKind.UNKNOWN


def test_readiness_counts_even_when_the_log_hides_it() -> None:
    """`--uvicorn-log-level warning` leaves out that it is ready."""
    assert told("graphs", Known(exit_code=-11, ready=True))[1] is Phase.FIRST_REQUEST
    odd = render(Snippet(at="graphs", frames=("handle",), lines=("ZeroDivisionError: odd",)))
    assert classify(Known(ready=True).with_log(odd), RULES).phase is Phase.FIRST_REQUEST
    assert classify(Known().with_log(odd), RULES).phase is Phase.GRAPHS


def test_what_a_client_was_told_is_named_by_the_rules_too() -> None:
    def client(error: str) -> Failure:
        return classify(Known(ready=True, client_error=error).with_log(quiet("first_request")), RULES)

    long = client(
        "HTTP 400: This model's maximum context length is 8192 tokens. However, your prompt contains"
    )
    assert (long.kind, long.blame, long.rule) == (FailureKind.CLIENT, Blame.USER, "request-too-long")
    assert (long.process, long.line_number, long.numbers["limit"]) == ("client", None, 8192)
    other = client("HTTP 404: The model `llama` does not exist.")
    assert (other.rule, other.blame) == ("request-for-unknown-model", Blame.HARNESS)


def test_the_server_dying_explains_more_than_what_the_client_was_told() -> None:
    known = Known(exit_code=0, ready=True, client_error="HTTP 500: EngineCore encountered an issue.")
    assert recorded("cpu-0.32/f10c-dflash-badlayers.log", known).rule == "draft-does-not-fit-target"


def test_the_log_comes_before_a_deadline_and_a_signal() -> None:
    known = Known(exit_code=-9, timed_out=True, stop_requested=True)
    assert recorded("cpu-0.32/f02-kv-too-small.log", known).rule == "kv-too-small-cpu"


def test_served_as_the_client_saw_it_decides_between_the_first_and_a_later_request() -> None:
    for served, phase in ((True, Phase.SERVING), (False, Phase.FIRST_REQUEST)):
        known = Known(exit_code=0, ready=True, served=served)
        assert recorded("h200-0.26/a3_hog_after_boot.log", known).phase is phase


def test_what_follows_our_own_signal_proves_nothing() -> None:
    """Its parts lament each other's end when a start is broken off."""
    lament = render(replace(QUIET, at="weights", alone=False))
    ours = Known(exit_code=1, timed_out=True, stop_requested=True)
    assert classify(ours.with_log(lament), RULES).kind is FailureKind.STALL
    theirs = Known(exit_code=1)
    assert classify(theirs.with_log(lament), RULES).rule == "engine-ended"


def test_somebody_elses_signal_is_the_environments() -> None:
    failure = recorded("cpu-0.32/a1-llama-eager.log", Known(exit_code=0, ready=True, served=True))
    assert (failure.kind, failure.blame) == (FailureKind.ENVIRONMENT, Blame.ENVIRONMENT)


def test_hints_explain_a_deadline_but_no_crash() -> None:
    said = "No available shared memory broadcast block found in 60 seconds. This typically happens when"
    waiting = render(replace(QUIET, at="serving", level="INFO", lines=(said,)))
    late = Known(ready=True, served=True, timed_out=True)
    assert classify(late.with_log(waiting), RULES).rule == "shared-memory-broadcast-wait"
    crashed = Known(ready=True, served=True, exit_code=-11)
    assert classify(crashed.with_log(waiting), RULES).rule is None
