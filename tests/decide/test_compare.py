"""Comparisons: what an interval rests on, that it holds the truth, and that nothing differs from itself."""

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import measured, point, record
from hypothesis import given
from hypothesis import strategies as st

from autotune.decide.compare import compare, runs_of
from autotune.decide.noise import decodes_speculatively
from autotune.domain.comparison import Row, Side
from autotune.domain.difference import Basis, Difference
from autotune.domain.measurement import Flag, FlagKind
from autotune.domain.space import Configuration
from autotune.domain.trial import Origin, TrialRecord
from autotune.domain.workload import Lengths, Workload

WORKLOAD = Workload(streams=(1, 8))


def side(*rates: float, streams: int = 8, **changes: object) -> Side:
    fields: dict[str, object] = {
        "name": "x",
        "model": "m",
        "workload": WORKLOAD,
        "version": "0.32.0",
        "machine": "host",
        "runs": tuple((point(streams, rate),) for rate in rates),
    }
    return Side(**{**fields, **changes})  # type: ignore[arg-type]


def throughput(first: Side, second: Side) -> Difference:
    (row,) = compare(first, second, ["out_tok_s"]).rows
    assert row.difference is not None
    return row.difference


def trials(*rates: float, number: int = 0, values: str = "same") -> tuple[TrialRecord, ...]:
    return tuple(record(number + n, measured(s8=rate), {"a": values}) for n, rate in enumerate(rates))


def finals(*blocks: Mapping[str, float]) -> tuple[TrialRecord, ...]:
    """Blocks of finals, by the configuration's name; the baseline's is empty."""
    plain = [(n, name, rate) for n, block in enumerate(blocks) for name, rate in block.items()]
    return tuple(
        replace(record(k, measured(s8=rate), {"a": name} if name else {}), origin=Origin.FINAL, block=n)
        for k, (n, name, rate) in enumerate(plain)
    )


def of_study(records: tuple[TrialRecord, ...], name: str, study: str = "s.db") -> Side:
    chosen = next(r for r in records if r.configuration == Configuration(values={"a": name} if name else {}))
    return side(
        study=study, records=records, configuration=chosen.configuration, runs=runs_of(records, chosen)
    )


BLOCKS = finals({"": 10, "a": 11.0}, {"": 20, "a": 22.2}, {"": 40, "a": 44.1})


@pytest.mark.parametrize(
    ("first", "second", "basis", "counts"),
    [
        (of_study(BLOCKS, ""), of_study(BLOCKS, "a"), Basis.BLOCKS, (3, 3)),
        # Blocks of the same number in two studies are not the same block.
        (of_study(BLOCKS, ""), of_study(BLOCKS, "a", "t.db"), Basis.REPEATS, (3, 3)),
        (side(9, 10), side(10, 11, 12), Basis.REPEATS, (2, 3)),
        (side(9, 9), side(10, 10), Basis.PRIOR, (2, 2)),
        (side(9), side(10, 11), Basis.PRIOR, (1, 2)),
        (side(9, study="s.db", records=trials(9, 10, 11)), side(10), Basis.NOISE, (1, 1)),
        (side(9, study="s.db", records=trials(9)), side(10), Basis.PRIOR, (1, 1)),
        (side(9, study="s.db", records=trials(9, 9)), side(10), Basis.PRIOR, (1, 1)),
    ],
)
def test_an_interval_rests_on_the_best_there_is(
    first: Side, second: Side, basis: Basis, counts: tuple[int, int]
) -> None:
    found = throughput(first, second)
    assert (found.basis, (found.n_first, found.n_second)) == (basis, counts)


def test_what_blocks_have_in_common_hides_nothing() -> None:
    found = throughput(of_study(BLOCKS, ""), of_study(BLOCKS, "a"))
    assert found.ratio == pytest.approx((1.1 * 1.11 * 1.1025) ** (1 / 3))
    assert found.is_distinguishable
    assert not throughput(of_study(BLOCKS, ""), of_study(BLOCKS, "a", "t.db")).is_distinguishable


def test_a_known_case_of_welch() -> None:
    logs = ([1.0, 1.1, 1.2], [1.3, 1.5])
    first, second = (side(*(math.exp(v) for v in values)) for values in logs)
    found = throughput(first, second)
    # By hand: means 1.1 and 1.4, variances 0.01 and 0.02, error sqrt(0.01/3 + 0.02/2) = 0.11547,
    # 1.684 degrees of freedom, whose quantile is 5.176 (scipy.stats.t.ppf).
    assert math.log(found.ratio) == pytest.approx(0.3)
    reach = math.log(found.interval.high) - 0.3
    assert reach == pytest.approx(0.3 - math.log(found.interval.low))
    assert reach / 0.1154700538 == pytest.approx(5.1762, rel=1e-4)


rates = st.lists(st.floats(0.1, 1e5), min_size=1, max_size=5)


@given(rates, st.sampled_from(["bench", "study", "finals"]))
def test_nothing_differs_from_itself(values: list[float], kind: str) -> None:
    records = finals(*({"": v, "a": 2 * v} for v in values)) if kind == "finals" else trials(*values)
    one = side(*values) if kind == "bench" else of_study(records, "a" if kind == "finals" else "same")
    found = compare(one, one)
    for row in found.rows:
        assert row.ratio == 1
        assert row.difference is None or not row.difference.is_distinguishable
    assert found.warnings == ()


@given(rates, rates)
def test_the_other_way_round_is_the_inverse(a: list[float], b: list[float]) -> None:
    first, second = side(*a), side(*b)
    there, back = throughput(first, second), throughput(second, first)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.interval.low == pytest.approx(1 / back.interval.high)
    assert (there.basis, there.n_first, there.n_second) == (back.basis, back.n_second, back.n_first)


@given(rates, rates, st.floats(0.5, 2))
def test_the_unit_does_not_matter(a: list[float], b: list[float], unit: float) -> None:
    plain = throughput(side(*a), side(*b))
    scaled = throughput(side(*(unit * v for v in a)), side(*(unit * v for v in b)))
    assert scaled.ratio == pytest.approx(plain.ratio, rel=1e-6)


def _simulated(rng: random.Random, n: int, m: int, basis: Basis) -> Difference:
    """A difference of 10 % measured n and m times with noise, of the second side more."""
    a = [100 * math.exp(rng.gauss(0, 0.02)) for _ in range(n)]
    b = [110 * math.exp(rng.gauss(0, 0.05 if basis is Basis.REPEATS else 0.02)) for _ in range(m)]
    others = trials(*(100 * math.exp(rng.gauss(0, 0.02)) for _ in range(5)))
    found = throughput(side(*a, study="s.db", records=others), side(*b))
    assert found.basis is basis
    return found


@pytest.mark.parametrize(
    ("n", "m", "basis"), [(5, 5, Basis.REPEATS), (2, 4, Basis.REPEATS), (1, 3, Basis.NOISE)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(n: int, m: int, basis: Basis) -> None:
    rng = random.Random(5)  # noqa: S311 - a simulation
    draws = 400
    intervals = [_simulated(rng, n, m, basis).interval for _ in range(draws)]
    # 400 draws at 95 % have a standard deviation of 1.1 %; these are three of them.
    assert 0.917 <= sum(i.low <= 1.1 <= i.high for i in intervals) / draws <= 0.983


def test_speculative_decoding_is_known_to_vary_more() -> None:
    words = ("vllm", "serve", "m", "--speculative-config.method=ngram")
    trial = replace(trials(10)[0], argv=words)
    assert decodes_speculatively(trial)
    assert not decodes_speculatively(trials(10)[0])
    calm, wild = throughput(side(10), side(12)), throughput(side(10), side(12, speculative=True))
    assert wild.interval.high / wild.interval.low > calm.interval.high / calm.interval.low


def test_all_measured_trials_of_a_configuration_are_its_runs() -> None:
    records = (*trials(10, 11), *trials(5, number=2, values="other"), record(3, None, {"a": "same"}))
    assert [run[0].out_tok_s for run in runs_of(records, records[1])] == [10, 11]
    assert runs_of(records, records[3]) == runs_of(records, records[0])


def _rows(first: Side, second: Side) -> dict[tuple[int, str], Row]:
    return {(row.streams, row.metric): row for row in compare(first, second).rows}


def test_without_any_repeat_a_latency_that_varies_more_than_throughput_has_no_interval() -> None:
    rows = _rows(side(10), side(20))
    assert rows[8, "ttft_p50"].difference is None
    assert rows[8, "ttft_p50"].ratio == 1
    assert rows[8, "e2e_p50"].difference is not None


def test_a_stream_count_that_one_side_lacks_is_shown_without_a_ratio() -> None:
    rows = _rows(side(10), side(20, streams=1))
    assert [(r.first, r.second, r.ratio) for r in (rows[1, "out_tok_s"], rows[8, "out_tok_s"])] == [
        (None, pytest.approx(20), None),
        (pytest.approx(10), None, None),
    ]


def test_what_was_not_measured_is_no_number() -> None:
    nothing = replace(point(8, 0.0), ttft_s=None)
    rows = _rows(side(10), side(runs=((nothing,),)))
    assert rows[8, "out_tok_s"].second is None
    assert rows[8, "ttft_p50"].second is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other"}, "The models differ: m; and other."),
        ({"version": "0.33.0"}, "The versions of vLLM differ: 0.32.0; and 0.33.0."),
        ({"version": None}, "The versions of vLLM differ: 0.32.0; and not known."),
        ({"machine": "elsewhere"}, "The machines differ: host; and elsewhere."),
        ({"gpus": ("H200", "H200")}, "The GPUs differ: L4; and H200, H200."),
        (
            {"workload": replace(WORKLOAD, prompt_tokens=Lengths(low=16, high=32), seed=3)},
            "The workloads differ: prompt_tokens 410 to 614, seed 0; and prompt_tokens 16 to 32, seed 3.",
        ),
    ],
)
def test_what_is_not_like_with_like_is_said(changes: Mapping[str, object], said: str) -> None:
    first, second = side(10, gpus=("L4",)), side(11, **{"gpus": ("L4",), **changes})
    assert compare(first, second).warnings == (said,)


def test_settings_that_change_no_request_are_no_difference() -> None:
    same = replace(WORKLOAD, streams=(8, 16), min_window_s=20.0, name="other")
    assert compare(side(10), side(11, workload=same)).warnings == ()


def test_doubts_about_a_side_are_said() -> None:
    stalled = Flag(kind=FlagKind.STALLED, text="no output for 4.0 s")
    bad = replace(point(8, 10.0), failed=5, flags=(stalled,))
    runs = ((bad,), (point(8, 11.0),))
    doubtful = side(name="b.json", restarted=False, notes=("Prompts are text.",), runs=runs)
    assert compare(side(10, 11), doubtful).warnings == (
        "b.json: Prompts are text.",
        "b.json: its repeats are of one launch; how much launches differ is not in the intervals.",
        "b.json, 8 streams: 5 of 25 requests failed.",
        "b.json, 8 streams: in doubt, no output for 4.0 s.",
    )
