"""The knowledge of good settings: what a file of it may say, how a wrong one is refused, what is shipped."""

import re
from pathlib import Path

import pytest

from autotune.decide.space.offers import OFFERS
from autotune.decide.start_book import FACTS, OF_THE_SETTING, StartBook
from autotune.domain.expression import Expression
from autotune.domain.machine import Device
from autotune.errors import FileError
from autotune.files.starts import read_starts
from autotune.host.vllm import find_vllm

DOCS = Path(__file__).parents[2] / "docs" / "search-spaces.md"

EXPERT = """
[[expert]]
name = "many streams"
settings = { max_num_seqs = "= 2 * max_streams", speculative_config__method = "ngram", OMP_NUM_THREADS = 4 }
needs = ["max_num_seqs"]
when = "max_streams > 8"
why = "w"
source = "s"
"""
FLIP = "[[flip]]\nsetting = 'kv_cache_dtype'\nvalues = ['fp8', '= low']\nwhy = 'w'\nsource = 's'\n"


def _read(folder: Path, text: str) -> StartBook:
    path = folder / "starts.toml"
    path.write_text("schema = 1\n" + text)
    return read_starts(path)


def test_entries_are_read(tmp_path: Path) -> None:
    usual = "[[{}]]\nsetting = 'max_num_seqs'\nvalue = {}\nsource = 's'\n"
    book = _read(tmp_path, EXPERT + FLIP + usual.format("default", 128) + usual.format("base", "'= low'"))
    (expert,), (flip,) = book.experts, book.flips
    assert (expert.name, expert.why, expert.needs) == ("many streams", "w", {"max_num_seqs"})
    assert expert.settings == {
        "max_num_seqs": Expression.parse("2 * max_streams"),
        "speculative_config__method": "ngram",
        "OMP_NUM_THREADS": 4,
    }
    assert expert.when == Expression.parse("max_streams > 8")
    assert (flip.setting, flip.also, flip.when) == ("kv_cache_dtype", {}, None)
    assert flip.values == ("fp8", Expression.parse("low"))
    assert [usual.value for usual in book.defaults] == [128]
    assert [usual.value for usual in book.base] == [Expression.parse("low")]


def changed(old: str, new: str) -> str:
    assert old in EXPERT + FLIP
    return (EXPERT + FLIP).replace(old, new)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("[[experts]]\nname = 'x'\n", "experts", "did you mean `expert`?"),
        (changed("when =", "if ="), "expert[1].if", "no such key"),
        (changed('name = "many streams"\n', ""), "expert[1].name", "is missing"),
        (changed('why = "w"', "why = ''"), "expert[1].why", "not empty"),
        (changed('source = "s"\n', ""), "expert[1].source", "is missing"),
        (changed('["max_num_seqs"]', '["block_size"]'), "expert[1].needs", "block_size is not among its"),
        (changed("max_streams > 8", "streams > 8"), "expert[1].when", "nothing is known as `streams`"),
        (changed("max_streams > 8", "high > 8"), "expert[1].when", "nothing is known as `high`"),
        (changed("max_streams > 8", "max_streams"), "expert[1].when", "where true or false is needed"),
        (changed("max_streams > 8", "device > 8"), "expert[1].when", "where a number is needed"),
        (changed("max_streams > 8", "exec('x')"), "expert[1].when", "not allowed"),
        (changed("= 2 * max_streams", "= 2 * device"), "expert[1].settings.max_num_seqs", "a number"),
        (changed("= 2 * max_streams", "= 2 *"), "expert[1].settings.max_num_seqs", "cannot be read"),
        (changed("= 2 * max_streams", "= most"), "expert[1].settings.max_num_seqs", "known as `most`"),
        (changed("OMP_NUM_THREADS = 4", "x = [4]"), "expert[1].settings.x", "must be a number, a text"),
        (changed("OMP_NUM_THREADS = 4", "x = { a = 1 }"), "expert[1].settings.x", "must be a number"),
        (
            changed("OMP_NUM_THREADS", "--max-num-seqs"),
            "expert[1].settings.--max-num-seqs",
            "write max_num_seqs",
        ),
        (
            changed("speculative_config__method", "speculative_config.method"),
            "expert[1].settings.speculative_config",
            "must be a number",
        ),
        ("[[expert]]\nname = 'x'\nwhy = 'w'\nsource = 's'\n", "expert[1].settings", "missing or empty"),
        (changed("'kv_cache_dtype'", "'--kv-cache-dtype'"), "flip[1].setting", "write kv_cache_dtype"),
        (changed("'kv_cache_dtype'", "'a.b'"), "flip[1].setting", "write a__b"),
        (changed("'kv_cache_dtype'", "'a b'"), "flip[1].setting", "not how a setting is written"),
        (changed("values = ['fp8', '= low']\n", ""), "flip[1].values", "is missing"),
        (changed("['fp8', '= low']", "[]"), "flip[1].values", "not empty"),
        (changed("['fp8', '= low']", "'fp8'"), "flip[1].values", "a list"),
        (changed("source = 's'", "source = 's'\nalso = { kv_cache_dtype = 1 }"), "flip[1].also", "flipped"),
        ("[[base]]\nsetting = 'a'\nsource = 's'\n", "base[1].value", "is missing"),
        ("[[default]]\nsetting = 'a'\nvalue = 1\n", "default[1].source", "is missing"),
    ],
)
def test_a_wrong_entry_is_refused_with_one_clear_sentence(
    tmp_path: Path, text: str, key: str, said: str
) -> None:
    with pytest.raises(FileError) as refused:
        _read(tmp_path, text)
    assert refused.value.key == key
    assert said in refused.value.problem
    assert "\n" not in str(refused.value)


BOOK = read_starts()


def _settings(book: StartBook) -> set[str]:
    """Every setting that the data speaks of."""
    entries = [*book.defaults, *book.base, *book.flips]
    inner = [*(e.settings for e in book.experts), *(f.also for f in book.flips)]
    return {entry.setting for entry in entries}.union(*inner)


def test_each_way_to_use_a_server_has_an_expert() -> None:
    names = " ".join(expert.name for expert in BOOK.experts)
    assert all(use in names for use in ("one stream", "many streams", "long context"))
    assert len({expert.name for expert in BOOK.experts}) == len(BOOK.experts)


def test_the_documentation_lists_what_is_shipped() -> None:
    page = DOCS.read_text()
    for expert in BOOK.experts:
        assert f"| {expert.name} |" in page
    for setting in {flip.setting for flip in BOOK.flips}:
        assert f"| `{setting}` |" in page
    for fact in (*FACTS, *OF_THE_SETTING):
        assert re.search(rf"^\|.*`{fact}`", page, re.MULTILINE), fact
    listed = re.findall(r"^\| `(\w+)` \| to ", page, re.MULTILINE)
    assert {*listed} == {flip.setting for flip in BOOK.flips}


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "[[flip]]" in block]
    book = _read(tmp_path, example.removeprefix("schema = 1\n"))
    assert book.flips
    assert book.experts


def test_no_setting_of_the_default_space_is_misspelt() -> None:
    # What is in no derived space, but may be in one that somebody writes.
    written_by_hand = {"linear_backend"}
    offered = {name for name in OFFERS if not name.startswith(("omp_", "ngram_", "mtp_"))} - {"speculation"}
    speculative = {f"speculative_config__{key}" for key in _SPECULATIVE}
    threads = {"OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND"}
    assert _settings(BOOK) <= offered | speculative | threads | written_by_hand


_SPECULATIVE = ("method", "num_speculative_tokens", "prompt_lookup_max")


@pytest.mark.e2e
def test_the_installed_vllm_has_every_flag() -> None:
    found = find_vllm(None)
    assert found.device is Device.CPU
    assert found.flags
    flags = {"--" + name.partition("__")[0].replace("_", "-") for name in _settings(BOOK) if name.islower()}
    assert flags <= found.flags.keys()
