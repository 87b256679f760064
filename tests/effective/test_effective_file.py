"""The file of facts and checks: every mistake in it is named with its place."""

from pathlib import Path

import pytest

from autotune.errors import FileError
from autotune.files.effective import VLLM_EFFECTIVE, read_effective

FACT = "[[fact]]\ncontains = 'seqs is'\npattern = 'seqs is (?P<max_num_seqs>\\d{1,9})'\n"
CHECK = (
    "[[check]]\nsetting = 'max_num_seqs'\nkind = 'changed'\nwhy = 'vLLM takes {max_num_seqs}'\nsource = 'x'\n"
)


def test_a_check_without_a_condition_compares_with_the_fact_of_its_name(tmp_path: Path) -> None:
    (check,) = _read(tmp_path, FACT + CHECK).checks
    assert (check.when.source, check.fact) == ("asked_max_num_seqs != max_num_seqs", "max_num_seqs")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[fact]]\ncontains = 'a line'\n", "gives no fact"),
        (FACT.replace("pattern", "patern"), "did you mean `pattern`"),
        (FACT + CHECK.replace("{max_num_seqs}", "{other}"), "nothing gives other a value"),
        (FACT + CHECK + "given = ['other']\n", "nothing gives other a value"),
        (CHECK, "there is no fact 'max_num_seqs' to compare with"),
        (FACT + CHECK.replace("changed", "odd"), "no_effect, changed"),
        (FACT + CHECK + "when = 'asked_x >'\n", "cannot be read"),
        (
            FACT + CHECK + "when = 'asked_max_num_seqs > 1'\n",
            "{max_num_seqs} may have no value",
        ),
        ("[counters]\ntokens = ['vllm:x']\n", "there is no such key"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(FileError) as error:
        _read(tmp_path, text)
    assert problem in str(error.value)


def test_the_file_that_is_shipped_names_its_sources() -> None:
    book = read_effective(VLLM_EFFECTIVE)
    assert all(check.source for check in book.checks)
    assert len(book.facts) > 40


def _read(folder: Path, text: str):  # type: ignore[no-untyped-def]
    path = folder / "effective.toml"
    path.write_text("schema = 1\n" + text)
    return read_effective(path)
