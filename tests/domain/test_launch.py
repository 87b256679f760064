import argparse
import json
import shlex
import string
import subprocess
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.decide.space.sampling import draw
from autotune.domain.expression import Expression
from autotune.domain.launch import ServerArgs, flag_words, server_args, shell_lines, shell_words
from autotune.domain.launch import settings as settings_of
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Fixed,
    FloatDomain,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)

NASTY = [
    *(
        "",
        " ",
        "a b",
        "'",
        '"',
        "'\"'",
        "$HOME",
        "$(touch x)",
        "`id`",
        "\\",
        "\\n",
        "a\nb",
        "\t",
        "-",
        "--",
        "-x",
    ),
    *("--host", "--host=0.0.0.0", "-1.5", "-O3", "=", "a=b", "a;b", "a|b&", "*", "~", "!x", "#x", "%h", "%%"),
    *(
        "{}",
        "[1]",
        '{"a": 1}',
        "{a,b}",
        "é",
        "日本語",
        "😀",
        "\u200b",
        "true",
        "None",
        "1e3",
        "0x10",
        "<",
        ">",
    ),
]
WORDS = st.sampled_from(NASTY) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
# argparse of Python 3.11 drops a bare `--` even where it is a value.
SCALARS = st.booleans() | NUMBERS | WORDS.filter(lambda word: word != "--")
LIST_ITEMS = SCALARS.filter(lambda item: not str(item).startswith("-"))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def parse_back(flags: dict, words: list[str]) -> dict:
    """What argparse, set up as vLLM sets it up, reads: `flags` are the values to expect, for their types."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for name, value in flags.items():
        match value:
            case bool():
                parser.add_argument(name, action=argparse.BooleanOptionalAction)
            case list():
                parser.add_argument(name, nargs="+")
            case dict():
                parser.add_argument(name, type=json.loads)
            case _:
                parser.add_argument(name, type=type(value))
    return {"--" + k.replace("_", "-"): v for k, v in vars(parser.parse_args(words)).items()}


NAMES = st.text(string.ascii_lowercase, min_size=2, max_size=6).map(lambda name: "--f-" + name)


LISTS = st.lists(LIST_ITEMS, min_size=1, max_size=3)


@given(st.dictionaries(NAMES, SCALARS | LISTS | st.dictionaries(WORDS, JSON)))
def test_flags_are_read_back_as_they_were(flags: dict) -> None:
    words = [word for name, value in flags.items() for word in flag_words(name, value)]
    expected = {name: list(map(word, v)) if isinstance(v, list) else v for name, v in flags.items()}
    assert parse_back(flags, words) == expected


def word(value: object) -> str:
    """A scalar as the one word that it becomes in a list."""
    return str(int(value)) if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("value", [[], ["a", "-b"], ["--host", "0.0.0.0"], [-1], "--"])
def test_values_that_cannot_be_written(value: object) -> None:
    with pytest.raises(ValueError, match="--x"):
        flag_words("--x", value)


@given(st.data(), st.randoms(use_true_random=False))
def test_a_sampled_configuration_is_read_back_equal(data: st.DataObject, rng: Random) -> None:
    choices = data.draw(
        st.lists(WORDS.filter(lambda word: word != "--"), min_size=1, max_size=4, unique=True)
    )
    keyed = data.draw(st.lists(SCALARS, min_size=1, max_size=4, unique=True))
    space = SearchSpace(
        name="s",
        parameters=(
            flag("word", CategoricalDomain(choices=tuple(choices))),
            flag("whole", IntDomain(low=-5, high=5)),
            flag("real", FloatDomain(low=-1.0, high=1.0)),
            flag("switch", CategoricalDomain(choices=(False, True))),
            Parameter(
                name="key",
                domain=CategoricalDomain(choices=tuple(keyed)),
                target=Target(kind=TargetKind.JSON, name="--object", keys=("a", "b")),
                when=Expression.parse("switch"),
            ),
            Parameter(
                name="variable",
                domain=CategoricalDomain(choices=tuple(choices)),
                target=Target(kind=TargetKind.ENV, name="VARIABLE"),
            ),
        ),
    )
    configuration = draw(space, rng)
    values = dict(configuration.values)
    args = server_args(space, configuration)
    assert args.env == {"VARIABLE": values.pop("variable")}
    if "key" in values:
        values["object"] = {"a": {"b": values.pop("key")}}
    expected = {f"--{name}": value for name, value in values.items()}
    assert parse_back(expected, list(args.flags)) == expected


def flag(name: str, domain: CategoricalDomain | IntDomain | FloatDomain, **more) -> Parameter:
    return Parameter(name=name, domain=domain, target=Target(kind=TargetKind.FLAG, name=f"--{name}"), **more)


def key(name: str, path: str, omit: tuple = ()) -> Parameter:
    name_, *keys = path.split(".")
    target = Target(kind=TargetKind.JSON, name=name_, keys=tuple(keys))
    return Parameter(name=name, domain=CategoricalDomain(choices=("off", "x")), target=target, omit=omit)


def fixed(kind: TargetKind, name: str, value: object) -> Fixed:
    return Fixed(target=Target(kind=kind, name=name), value=value)


def args(space: SearchSpace, **values) -> ServerArgs:
    return server_args(space, Configuration(values=values))


ON_OFF = CategoricalDomain(choices=(False, True))


def test_a_parameter_overrides_a_fixed_setting_and_omitting_takes_it_away() -> None:
    space = SearchSpace(
        name="s",
        parameters=(
            flag("n", IntDomain(low=0, high=9), omit=(0,)),
            flag("b", ON_OFF, omit=(False,)),
            Parameter(
                name="e",
                domain=CategoricalDomain(choices=("auto", "1")),
                target=Target(kind=TargetKind.ENV, name="E"),
                omit=("auto",),
            ),
        ),
        fixed=(
            fixed(TargetKind.FLAG, "--n", 5),
            fixed(TargetKind.FLAG, "--b", True),
            fixed(TargetKind.ENV, "E", 2),
            fixed(TargetKind.FLAG, "--z", [1, "a"]),
        ),
    )
    assert args(space) == ServerArgs(flags=("--n", "5", "--b", "--z", "1", "a"), env={"E": "2"})
    assert args(space, n=7, b=True, e="1") == ServerArgs(
        flags=("--n", "7", "--b", "--z", "1", "a"), env={"E": "1"}
    )
    assert args(space, n=0, b=False, e="auto") == ServerArgs(flags=("--z", "1", "a"), env={})


def test_omit_goes_by_type_as_well() -> None:
    space = SearchSpace(name="s", parameters=(flag("b", ON_OFF, omit=(0,)),))
    assert args(space, b=False).flags == ("--no-b",)


def test_json_keys_are_gathered_and_leave_the_fixed_object_as_it_was() -> None:
    space = SearchSpace(
        name="s",
        parameters=(key("p", "--o.a.b", omit=("off",)), key("q", "--o.c", omit=("off",))),
        fixed=(fixed(TargetKind.FLAG, "--o", {"a": {"k": 1}, "c": 2}),),
    )
    before = space.digest
    assert args(space, p="x", q="x").flags == ("--o", '{"a":{"k":1,"b":"x"},"c":"x"}')
    assert args(space, p="off", q="off").flags == ("--o", '{"a":{"k":1}}')
    assert args(space).flags == ("--o", '{"a":{"k":1},"c":2}')
    assert space.digest == before


def test_an_object_with_every_key_omitted_is_no_flag() -> None:
    space = SearchSpace(name="s", parameters=(key("p", "--o.a", omit=("off",)),))
    assert args(space, p="off").flags == ()


def test_a_key_inside_something_that_is_no_object() -> None:
    space = SearchSpace(
        name="s", parameters=(key("p", "--o.a"),), fixed=(fixed(TargetKind.FLAG, "--o", "text"),)
    )
    with pytest.raises(ValueError, match="--o"):
        args(space, p="x")


ENV_NAMES = st.text(string.ascii_uppercase, min_size=1, max_size=4).map(lambda name: "T_" + name)


@given(st.lists(WORDS, min_size=1, max_size=5), st.dictionaries(ENV_NAMES, WORDS, max_size=3))
def test_shell_words_are_split_back(argv: list[str], env: dict[str, str]) -> None:
    assert shlex.split(shell_words(argv, env)) == [*(f"{k}={v}" for k, v in env.items()), *argv]


SHOW = "import json, os, sys; json.dump([sys.argv[1:], os.environ.get('T_VALUE')], sys.stdout)"


@settings(max_examples=15, deadline=None)
@given(st.lists(WORDS, max_size=5), WORDS)
def test_bash_reads_the_same_words(argv: list[str], value: str) -> None:
    check_in_bash(argv, value)


def test_bash_reads_all_the_nasty_words() -> None:
    check_in_bash(NASTY, "".join(NASTY))


def check_in_bash(argv: list[str], value: str) -> None:
    for render in (shell_words, shell_lines):
        text = render(["python3", "-c", SHOW, *argv], {"T_VALUE": value})
        done = subprocess.run(["bash", "-c", text], capture_output=True, check=True)
        assert json.loads(done.stdout) == [argv, value]


def test_a_program_with_an_equals_sign_is_still_the_program(tmp_path) -> None:
    program = tmp_path / "a=b"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", shell_words(["a=b"], {})], env=env, capture_output=True, check=True)
    assert done.stdout == b"ran\n"


def test_no_words() -> None:
    assert shell_words([], {}) == shell_lines([], {}) == ""


def test_each_flag_is_on_a_line_with_its_values() -> None:
    argv = ["vllm", "serve", "a model", "--sizes", "1", "2", "--enforce-eager", "--x", '{"a": 1}']
    assert shell_lines(argv, {"A": "b"}).split("\n") == [
        "A=b vllm serve 'a model' \\",
        "  --sizes 1 2 \\",
        "  --enforce-eager \\",
        """  --x '{"a": 1}'""",
    ]


def test_settings_are_named_as_vllm_names_them_whatever_the_space_calls_them() -> None:
    spec = Target(kind=TargetKind.FLAG, name="--speculative-config")
    space = SearchSpace(
        name="s",
        parameters=(
            Parameter(
                name="how",
                domain=CategoricalDomain(choices=("off", "ngram")),
                target=Target(kind=TargetKind.JSON, name="--speculative-config", keys=("method",)),
                omit=("off",),
            ),
            Parameter(
                name="threads",
                domain=CategoricalDomain(choices=(1, 2)),
                target=Target(kind=TargetKind.ENV, name="OMP_NUM_THREADS"),
            ),
        ),
        fixed=(
            Fixed(target=spec, value={"method": "mtp", "tokens": 3, "deep": {"x-y": True}, "none": None}),
            Fixed(target=Target(kind=TargetKind.ENV, name="VLLM_CPU_KVCACHE_SPACE"), value="4"),
            Fixed(target=Target(kind=TargetKind.FLAG, name="--sizes"), value=[1, 2]),
        ),
    )
    fixed = {
        "speculative_config__tokens": 3,
        "speculative_config__deep__x_y": True,
        "VLLM_CPU_KVCACHE_SPACE": 4,
        "sizes": "[1,2]",
    }
    assert settings_of(space, Configuration()) == {**fixed, "speculative_config__method": "mtp"}
    changed = Configuration(values={"how": "off", "threads": 2})
    assert settings_of(space, changed) == {**fixed, "OMP_NUM_THREADS": 2}
