"""The knowledge of what failures teach: what a file of it may say, and how a wrong one is refused."""

from pathlib import Path

import pytest

from autotune.domain.lesson import LessonForm
from autotune.errors import FileError
from autotune.files.lessons import read_lessons

HEAD = "schema = 1\n[region.kv]\nat_most = ['a']\nextra = ['m']\nfree = { m = ['ngram'] }\n"


def _read(folder: Path, text: str, head: str = HEAD) -> object:
    path = folder / "lessons.toml"
    path.write_text(head + text)
    return read_lessons(path)


def test_an_entry_is_read_with_its_region(tmp_path: Path) -> None:
    path = tmp_path / "lessons.toml"
    path.write_text(
        HEAD + "[[lesson]]\nrules = ['x']\nform = 'bound'\nforbids = ['b > {n}']\nregion = 'kv'\n"
    )
    (teaching,) = read_lessons(path).teachings
    assert teaching.form is LessonForm.BOUND
    assert teaching.rules == {"x"}
    assert teaching.forbids == ("b > {n}",)
    assert teaching.region is not None
    assert teaching.region.decisive == {"a"}
    assert teaching.region.free == {"m": ("ngram",)}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("form = 'bound'\nregion = 'kv'", "either `rules` or `kind`"),
        ("rules = ['x']\nkind = 'gpu_oom'\nform = 'bound'\nregion = 'kv'", "either `rules` or `kind`"),
        ("rules = ['x']\nform = 'bound'", "forbids nothing"),
        ("rules = ['x']\nform = 'bound'\nregion = 'no'", "no region 'no'"),
        ("rules = ['x']\nform = 'maybe'\nregion = 'kv'", "must be one of bound, no_good, ban"),
        ("kind = 'gpu_oom'\nphases = ['late']\nform = 'bound'\nregion = 'kv'", "must be one of args"),
        ("rules = [3]\nform = 'bound'\nregion = 'kv'", "a list of texts"),
        ("rules = ['x']\nform = 'bound'\nregoin = 'kv'", "did you mean `region`"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_fault(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(FileError, match="lesson") as refused:
        _read(tmp_path, f"[[lesson]]\n{entry}\n")
    assert said in str(refused.value)
