from dataclasses import replace

import pytest
from builders import objectives, point

from autotune.domain.measurement import Attainment, Interval, Point, Quantiles
from autotune.domain.metric import FLOORS, LATENCIES, METRICS, IntervalBy, metric_names
from autotune.domain.objective import Objective, check_slos, default_objectives, wanted_requests
from autotune.domain.slo import Slo
from autotune.errors import UserError


@pytest.mark.parametrize("metric", METRICS)
def test_round_trip(metric: str) -> None:
    assert str(Objective.parse(f"{metric}@12")) == f"{metric}@12"


def test_directions() -> None:
    assert Objective.parse("out_tok_s@1").maximize
    assert not Objective.parse("ttft_p95@1").maximize


SAMPLE = Quantiles(
    n=700, p50=1.0, p90=2.0, p95=3.0, p99=4.0, intervals={"p50": Interval(low=0.9, high=1.1)}
)  # fmt: skip


def full_point(sample: Quantiles | None = SAMPLE) -> Point:
    share = Attainment(met=90, of=100, interval=Interval(low=0.82, high=0.95))
    latencies = {f"{name}_s": sample for name in LATENCIES}
    return replace(point(8, 50.0), **latencies, goodput_req_s=1.5, slo=share)


def test_every_metric_reads_its_own_number() -> None:
    whole = full_point()
    rates = {name: METRICS[name].read(whole) for name in METRICS if not name.startswith(tuple(LATENCIES))}
    assert rates == {
        "out_tok_s": 50.0,
        "prompt_tok_s": 200.0,
        "req_s": 50 / 32,
        "goodput_req_s": 1.5,
        "slo_attainment": 0.9,
    }
    for name in LATENCIES:
        only = replace(full_point(None), **{f"{name}_s": SAMPLE})
        read = {metric: METRICS[metric].read(only) for metric in METRICS if metric.startswith(name)}
        assert list(read.values()) == [1.0, 2.0, 3.0, 4.0]
        others = [METRICS[m].read(only) for m in METRICS if m not in read and METRICS[m].unit == "s"]
        assert set(others) == {None}


def test_intervals_are_read_where_a_metric_says_it_has_one() -> None:
    whole = full_point()
    assert METRICS["ttft_p50"].interval(whole) == Interval(low=0.9, high=1.1)
    assert METRICS["slo_attainment"].interval(whole) == Interval(low=0.82, high=0.95)
    for metric in METRICS.values():
        assert metric.interval_by is not IntervalBy.REPEATS or metric.interval(point(8, 50.0)) is None


@pytest.mark.parametrize("quantile", FLOORS)
def test_a_quantile_has_a_value_from_its_floor_on(quantile: str) -> None:
    objective = Objective.parse(f"tpot_{quantile}@8")
    assert objective.floor == FLOORS[quantile]
    enough, too_few = (full_point(replace(SAMPLE, n=n)) for n in (objective.floor, objective.floor - 1))
    assert objective.value((enough,)) == SAMPLE.at(quantile)
    assert objective.shortage((enough,)) is None
    assert objective.value((too_few,)) is None
    assert objective.shortage((too_few,)) == (
        f"too few requests for {objective}: {objective.floor - 1} of {objective.floor}"
    )


def test_nothing_measured_has_neither_value_nor_shortage_and_no_latency_has_a_shortage() -> None:
    objective = Objective.parse("ttft_p50@4")
    assert (objective.value((full_point(),)), objective.shortage((full_point(),))) == (None, None)
    none = replace(full_point(None), streams=4)
    assert objective.shortage((none,)) == "too few requests for ttft_p50@4: 0 of 11"
    assert Objective.parse("chunk_gap_p90@4").shortage((none,)) == "too few gaps for chunk_gap_p90@4: 0 of 64"


def test_rates_have_no_floor() -> None:
    assert Objective.parse("out_tok_s@8").floor == 0
    assert Objective.parse("out_tok_s@8").value((replace(full_point(None), done=0),)) == 50.0


def test_a_point_has_to_hold_the_requests_of_its_most_demanding_objective() -> None:
    wanted = objectives("ttft_p50@1", "ttft_p95@8", "e2e_p90@8", "out_tok_s@4", "chunk_gap_p99@2")
    assert wanted_requests(wanted) == {1: 11, 8: 130}


@pytest.mark.parametrize("text", ["goodput_req_s@8", "slo_attainment@8"])
def test_an_objective_about_slos_needs_some(text: str) -> None:
    check_slos(objectives(text), (Slo.parse("ttft_p95=2s"),))
    check_slos(objectives("out_tok_s@8"), ())
    with pytest.raises(UserError, match=f"{text}.*--slo"):
        check_slos(objectives(text), ())


def test_the_short_list_of_names_stands_for_all() -> None:
    listed = []
    for word in metric_names().split(", "):
        first, *more = word.split("|")
        listed += [first, *(f"{first.rpartition('_')[0]}_{quantile}" for quantile in more)]
    assert listed == list(METRICS)


WRONG = ["", "out_tok_s", "out_tok_s@", "out_tok_s@0", "out_tok_s@-1", "out_tok_s@1.5", "speed@8", "@8"]
WRONG += ["out_tok_s@८", "out_tok_s@" + "9" * 5000, "out_tok_s@8@8", "out_tok_s @8"]


@pytest.mark.parametrize("text", WRONG)
def test_refused(text: str) -> None:
    with pytest.raises(UserError, match="objective"):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("streams", "expected"),
    [((1, 2, 8), ["out_tok_s@8", "out_tok_s@1"]), ((2, 8), ["out_tok_s@8"]), ((1,), ["out_tok_s@1"])],
)
def test_default(streams: tuple[int, ...], expected: list[str]) -> None:
    assert [str(objective) for objective in default_objectives(streams)] == expected
