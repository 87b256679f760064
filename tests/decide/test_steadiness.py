"""Stalls and changes of speed, found in simulated servers and in none that only do what they always do."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from autotune.decide.steadiness import stalled, unsteady
from autotune.domain.measurement import FlagKind, RequestRecord, RequestState


@dataclass(kw_only=True)
class Request:
    """One that the engine has not finished."""

    stream: int
    sequence: int
    sent_s: float
    tokens: int
    prompt: float
    times: list[float] = field(default_factory=list)

    def record(self, now_s: float, per_chunk: int) -> RequestRecord:
        is_done = len(self.times) == self.tokens
        return RequestRecord(
            stream=self.stream,
            sequence=self.sequence,
            prompt_index=0,
            sent_s=self.sent_s,
            chunk_s=tuple(self.times[::-per_chunk][::-1] if is_done else self.times[::per_chunk]),
            ended_s=now_s,
            wanted_output_tokens=self.tokens,
            prompt_tokens=round(512 * self.prompt),
            output_tokens=self.tokens if is_done else None,
            state=RequestState.DONE if is_done else RequestState.CUT,
        )


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A closed loop on a server that works in steps: a token for each request, and at most one new prompt.

    `prefill_s` is added to a step with a prompt of usual length; nobody gets anything while `halts` last.
    """

    streams: int = 16
    output_tokens: int = 128
    prefill_s: float = 0.02
    step_s: float = 0.01
    step_s_per_stream: float = 0.0
    noise: float = 0.05
    per_chunk: int = 1
    slots: int | None = None
    prompts: tuple[float, ...] = (1.0,)
    """Lengths, as shares of the usual one."""
    halts: tuple[tuple[float, float], ...] = ()
    slowness: Callable[[float], float] = lambda _: 1.0

    def run(self, seed: int, until_s: float) -> list[RequestRecord]:
        rng = random.Random(seed)  # noqa: S311 - the same in every run
        records: list[RequestRecord] = []
        running: list[Request] = []
        waiting = [self._request(rng, stream, 0, 0.0) for stream in range(self.streams)]
        now_s = 0.0
        while now_s < until_s:
            step_s = self.step_s + self.step_s_per_stream * len(running)
            if waiting and len(running) < (self.slots or self.streams):
                running.append(waiting.pop(0))
                step_s += self.prefill_s * running[-1].prompt
            now_s = self._ends(now_s + step_s * self.slowness(now_s) * max(0.2, rng.gauss(1, self.noise)))
            for request in running:
                request.times.append(now_s)
            over = [r for r in running if len(r.times) == r.tokens]
            running = [r for r in running if len(r.times) < r.tokens]
            records += [r.record(now_s, self.per_chunk) for r in over]
            waiting += [self._request(rng, r.stream, r.sequence + 1, now_s) for r in over]
        return records + [r.record(now_s, self.per_chunk) for r in running + waiting]

    def _request(self, rng: random.Random, stream: int, sequence: int, now_s: float) -> Request:
        share = rng.uniform(0.8, 1.2) if sequence else rng.uniform(0.1, 1)
        tokens = max(2, round(self.output_tokens * share))
        prompt = rng.choice(self.prompts)
        return Request(stream=stream, sequence=sequence, sent_s=now_s, tokens=tokens, prompt=prompt)

    def _ends(self, at_s: float) -> float:
        ends = [begin_s + length_s for begin_s, length_s in self.halts if 0 <= at_s - begin_s < length_s]
        return max([at_s, *ends])


WINDOW = (6.0, 14.0)


# Stalls

NATURAL = [
    Engine(streams=1, prefill_s=1.2, output_tokens=64),
    Engine(streams=1, prefill_s=1.2, output_tokens=400),
    Engine(streams=1, step_s=0.6, output_tokens=8),
    Engine(streams=1, prefill_s=0.4, output_tokens=32, prompts=(1.0, 1.0, 1.0, 4.0)),
    Engine(streams=4, prefill_s=0.7, output_tokens=64),
    Engine(streams=16, prefill_s=0.6, output_tokens=64),
    Engine(streams=16, step_s=0.05, per_chunk=16),
    Engine(streams=2, step_s=0.05, per_chunk=16),
    Engine(streams=64, slots=8, step_s=0.02),
    Engine(streams=64),
]
"""Servers with long silences that are usual: between two requests, while prompts are read, between chunks."""


@pytest.mark.parametrize("engine", NATURAL)
def test_usual_silences_are_no_stalls(engine: Engine) -> None:
    for seed in range(20):
        assert stalled(engine.run(seed, 16.0), WINDOW) is None


@pytest.mark.parametrize(
    "engine",
    [
        Engine(),
        Engine(streams=1),
        Engine(streams=1, output_tokens=400),  # the window holds two requests
        Engine(streams=1, prefill_s=0.3),
        Engine(streams=4, prefill_s=0.3),
        Engine(streams=64, slots=8, step_s=0.02),  # requests wait for 10 s, but never in silence
        Engine(streams=16, step_s=0.02, per_chunk=8),
    ],
)
@pytest.mark.parametrize("begin_s", [5.2, 9.0, 12.7])
def test_a_halt_is_found_wherever_it_is(engine: Engine, begin_s: float) -> None:
    """Across either edge of the window, too, and as one that goes on when the records end."""
    for seed in range(5):
        records = replace(engine, halts=((begin_s, 1.6),)).run(seed, 15.0)
        flag = stalled(records, WINDOW)
        assert flag is not None
        assert flag.kind is FlagKind.STALLED


def test_one_that_lasts_to_the_end_of_everything() -> None:
    records = Engine().run(1, 13.0)
    until_s = max(r.ended_s for r in records)
    cut = [replace(r, ended_s=15.0) if r.state is RequestState.CUT else r for r in records]
    flag = stalled(cut, (6.0, 15.0))
    assert flag is not None
    assert f"no stream got anything for {15.0 - until_s:.1f} s of the 9 s window" in flag.text


def test_several_short_ones_count_together_and_one_in_a_long_window_does_not() -> None:
    halts = ((7.0, 0.7), (9.0, 0.7), (11.0, 0.7))
    flag = stalled(replace(Engine(), halts=halts).run(0, 15.0), WINDOW)
    assert flag is not None
    assert "for 2.1 s of the 8 s window (longest 0.7 s, from second " in flag.text
    assert stalled(replace(Engine(), halts=halts[:1]).run(0, 50.0), (6.0, 49.0)) is None


def test_without_a_request_under_way_nobody_is_silent() -> None:
    """In an open loop of a low rate there is nothing to say most of the time."""
    records = [
        replace(r, stream=n, sent_s=at_s, chunk_s=(at_s + 0.05, at_s + 0.1), ended_s=at_s + 0.11)
        for n, at_s in enumerate([1.0, 4.0, 7.0, 11.0])
        for r in Engine(streams=1).run(0, 1.0)[:1]
    ]
    assert stalled(records, WINDOW) is None
    assert stalled([*records, replace(records[-1], sent_s=8.0, chunk_s=(10.0,), ended_s=10.0)], WINDOW)


def test_nothing_is_said_of_nothing() -> None:
    assert stalled([], WINDOW) is None
    assert unsteady([], WINDOW) is None


# Changes of speed

LOADS = [
    Engine(streams=1, output_tokens=256),
    Engine(streams=2),
    Engine(streams=4, output_tokens=256),
    Engine(streams=8, output_tokens=400, step_s=0.02),
]
ROUGH = [
    Engine(streams=1, prefill_s=0.5, output_tokens=64, step_s=0.02),
    Engine(streams=4, prefill_s=0.3, output_tokens=64, step_s=0.03),
    Engine(streams=16, prefill_s=0.1, step_s=0.01, step_s_per_stream=0.001),
    Engine(streams=64, output_tokens=64, step_s_per_stream=0.0002),
]
"""A half of the window holds more prompts than the other by chance, which moves rate and time per token."""


def share_flagged(engine: Engine, runs: int) -> float:
    flags = [unsteady(engine.run(seed, 14.5), WINDOW) for seed in range(runs)]
    return sum(flag is not None for flag in flags) / runs


@pytest.mark.parametrize("engine", LOADS + ROUGH)
def test_a_steady_load_is_rarely_flagged(engine: Engine) -> None:
    assert share_flagged(engine, 50) <= 0.02


@pytest.mark.parametrize("engine", LOADS)
@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
def test_a_ramp_of_20_percent_is_nearly_always_flagged(engine: Engine, factor: float) -> None:
    begin, end = WINDOW
    ramp = replace(engine, slowness=lambda at: factor ** ((at - begin) / (end - begin)))
    assert share_flagged(ramp, 20) >= 0.95


@pytest.mark.parametrize("engine", LOADS)
def test_a_step_of_20_percent_is_nearly_always_flagged(engine: Engine) -> None:
    step = replace(engine, slowness=lambda at: 1.2 if at > 10.0 else 1.0)
    assert share_flagged(step, 20) >= 0.95


def test_the_words() -> None:
    flag = unsteady(replace(LOADS[0], slowness=lambda at: 2.0 if at > 10.0 else 1.0).run(0, 15.0), WINDOW)
    assert flag is not None
    assert flag.kind is FlagKind.UNSTEADY
    assert flag.text.startswith("tokens per second fell by ")
    assert "the time per token went from 10" in flag.text


def test_too_few_tokens_say_nothing() -> None:
    slow = Engine(streams=1, step_s=0.05, slowness=lambda at: 2.0 if at > 10.0 else 1.0)
    assert unsteady(slow.run(0, 15.0), WINDOW) is None


def test_a_stall_is_no_change_of_speed() -> None:
    engine = replace(LOADS[2], halts=((10.5, 1.0),), slowness=lambda at: 1.1 if at > 10.0 else 1.0)
    records = engine.run(0, 15.0)
    assert stalled(records, WINDOW) is not None
    assert unsteady(records, WINDOW) is None
