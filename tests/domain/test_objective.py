import pytest

from autotune.domain.objective import METRICS, Objective, default_objectives
from autotune.domain.workload import Workload
from autotune.errors import UserError


@pytest.mark.parametrize("metric", METRICS)
def test_round_trip(metric: str) -> None:
    assert str(Objective.parse(f"{metric}@12")) == f"{metric}@12"


def test_directions() -> None:
    assert Objective.parse("out_tok_s@1").maximize
    assert not Objective.parse("ttft_p95@1").maximize


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt_tokens": 0},
        {"output_tokens": -1},
        {"prompts": 0},
        {"streams": ()},
        {"streams": (0, 1)},
        {"streams": (2, 1)},
        {"streams": (1, 1)},
        {"min_window_s": 0.0},
        {"min_window_s": 9.0, "max_window_s": 8.0},
        {"min_window_s": float("nan")},
    ],
)
def test_workloads_that_cannot_be_run(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Workload(**wrong)
