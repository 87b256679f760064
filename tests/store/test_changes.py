"""A watched study file: every commit of another connection is seen, and reading is none."""

from pathlib import Path

from builders import BEGIN

from autotune.store.changes import change_counter
from autotune.store.connection import open_engine
from autotune.store.evidence import EvidenceStore


def test_a_commit_is_seen_and_a_reader_is_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    store = EvidenceStore(open_engine(url, create=True))
    with change_counter(open_engine(url, create=False)) as count:
        before = count()
        store.records()
        EvidenceStore(open_engine(url, create=False)).budgets_s()
        assert count() == before
        store.begin_run(60.0, BEGIN)
        after = count()
        assert after != before
        assert count() == after
        store.end_run(1.0, "budget")
        assert count() != after
