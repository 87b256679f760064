"""What is said of a verdict, and the table that goes with it on a terminal of 80 columns."""

import io
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec
import pytest
from builders import failed, measured, objectives, record
from rich.console import Console

from autotune.decide.verdict import Verdict, verdict
from autotune.domain.trial import Origin, TrialRecord
from autotune.report.verdict import ladder, notes, sentences, verdict_document


def _found(records: Sequence[TrialRecord]) -> Verdict:
    found = verdict(records, objectives())
    assert found is not None
    return found


def _finals(gain: float, scale: float = 1.0, blocks: int = 3) -> list[TrialRecord]:
    """A search and finals of the defaults and one other, which is `gain` times as fast."""
    records: list[TrialRecord] = []
    luck = Random(1)  # noqa: S311 - reproducible on purpose
    for block in (None, *range(blocks)):
        for n, times in enumerate((1.0, gain)):
            rate = scale * times * luck.gauss(1.0, 0.003)
            made = record(len(records), measured(s1=10 * rate, s8=60 * rate), {"a": n} if n else {})
            records.append(
                replace(made, origin=Origin.FINAL if block is not None else made.origin, block=block)
            )
    return records


def _printed(found: Verdict) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(ladder(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (_finals(1.2), ["Winner: trial 1, a=1: 1.20 times", "95 % interval 1.1", "3 blocks of finals"]),
        (_finals(1.0), ["Nothing is distinguishable from vLLM's defaults: deploy those", "trial 1, a=1"]),
        (_finals(0.95), ["vLLM's defaults are the fastest: deploy those", "0.95 times"]),
        (_finals(2.0)[:2], ["Candidate: trial 1", "not confirmed", "with about 8 min 48 s or more, holds"]),
        (_finals(1.01)[:2], ["Nothing measured is clearly faster", "looks like 1.0"]),
        (_finals(1.0)[:1], ["Nothing else was measured"]),
        ([record(0, failed(), {}), *_finals(1.0)[1:2]], ["Winner: trial 1", "could not be measured here"]),
        ([*_finals(1.2), record(9, measured(s1=50.0, s8=300.0))], ["Clearly better still looks trial 9"]),
    ],
)  # fmt: skip
def test_the_sentences_say_what_to_deploy_and_what_that_rests_on(
    records: list[TrialRecord], said: list[str]
) -> None:
    text = sentences(_found(records), objectives())
    for part in said:
        assert part in text, text


@pytest.mark.parametrize("scale", [0.1, 1.0, 1000.0])
def test_the_ladder_has_baseline_winner_and_intervals_in_80_columns(scale: float) -> None:
    text = _printed(_found(_finals(1.2, scale)))
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert "…" not in text
    assert "baseline" in text
    assert "winner" in text
    (row,) = [line.split() for line in lines if line.split()[:1] == ["8"]]
    assert row[-2] == "1.20x"
    low, high = map(float, row[-1].split("-"))
    assert 1.1 < low < 1.2 < high < 1.3


def test_without_finals_the_ladder_shows_no_interval_and_says_why_it_proves_little() -> None:
    found = _found(_finals(2.0)[:2])
    assert "interval" not in _printed(found)
    assert "candidate" in _printed(found)
    assert any("measured once" in note for note in notes(found))
    tied = _found(_finals(1.0))
    assert "best other" in _printed(tied)
    assert any("launched 4 times in the course of the study, varied by" in note for note in notes(tied))


def test_the_document_has_the_gain_and_what_it_rests_on() -> None:
    plain = msgspec.json.decode(msgspec.json.encode(verdict_document(_found(_finals(1.2)))))
    assert plain["certainty"] == "confirmed"
    assert plain["low"] < 1.2 < plain["high"]
    assert (plain["blocks"], plain["confidence"], plain["basis"]) == (3, pytest.approx(0.95), "blocks")
    assert [row["streams"] for row in plain["streams"]] == [1, 8]
    assert plain["streams"][0]["out_tok_s"]["ratio"] == pytest.approx(1.2, abs=0.02)
    alone = verdict_document(_found(_finals(2.0)[:2]))
    assert (alone["certainty"], alone["ratio"], alone["blocks"]) == ("unconfirmed", None, 0)
    assert alone["looks"] == pytest.approx(2.0, abs=0.02)
