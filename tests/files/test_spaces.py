import re
from pathlib import Path
from random import Random

import pytest

from autotune.decide.space.sampling import sample
from autotune.domain.launch import server_args
from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    FloatDomain,
    IntDomain,
    Target,
    TargetKind,
)
from autotune.errors import FileError, UserError
from autotune.files.shipped import SEARCH_SPACES, shipped_folder
from autotune.files.spaces import load_space
from autotune.files.studies import load_study

DOCS = Path(__file__).parents[2] / "docs" / "search-spaces.md"

WHOLE = """
schema = 1
name = "mine"

[parameters]
max_num_seqs = { type = "int", low = 1, high = 64, log = true }
util = { type = "float", low = 0, high = 0.9, step = 0.1, flag = "--gpu_memory_utilization" }
steps = { type = "int", low = 2, high = 8, step = 3 }
enforce_eager = { type = "bool", omit = false }

[parameters.speculation]
type = "categorical"
choices = ["off", "ngram", "mtp"]
json = "speculative_config.method"
omit = ["off"]

[parameters.ngram_tokens]
type = "int"
low = 1
high = 4
json = "speculative-config.num_speculative_tokens"
when = "speculation == 'ngram'"

[parameters.mtp_tokens]
type = "int"
low = 1
high = 2
json = "speculative_config.num_speculative_tokens"
when = "speculation == 'mtp'"

[parameters.threads]
type = "categorical"
choices = [1, "auto"]
env = "OMP_NUM_THREADS"

[[constraints]]
require = "max_num_seqs >= steps"
why = "one"

[[constraints]]
require = "ngram_tokens < 4 or enforce_eager"
why = "two"

[fixed.flags]
max-model-len = 2048
"--dtype" = "auto"
cudagraph_capture_sizes = [1, 2, 4]
compilation-config = { mode = 3, passes = [{ a = true }] }
enable-prefix-caching = false

[fixed.env]
VLLM_USE_V1 = 1
NAME = "a b"
"""


def write(folder: Path, text: str, name: str = "s.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_everything_a_space_can_say(tmp_path: Path) -> None:
    write(tmp_path, WHOLE)
    space = load_space("s.toml", tmp_path)
    assert space.name == "mine"
    names = "max_num_seqs util steps enforce_eager speculation ngram_tokens mtp_tokens threads"
    assert [p.name for p in space.parameters] == names.split()
    assert space.parameter("max_num_seqs").domain == IntDomain(low=1, high=64, log=True)
    assert space.parameter("util").domain == FloatDomain(low=0.0, high=0.9, step=0.1)
    assert space.parameter("steps").domain == IntDomain(low=2, high=8, step=3)
    assert space.parameter("threads").domain == CategoricalDomain(choices=(1, "auto"))
    assert space.parameter("util").target == Target(kind=TargetKind.FLAG, name="--gpu-memory-utilization")
    assert space.parameter("steps").target == Target(kind=TargetKind.FLAG, name="--steps")
    assert space.parameter("threads").target == Target(kind=TargetKind.ENV, name="OMP_NUM_THREADS")
    tokens = Target(kind=TargetKind.JSON, name="--speculative-config", keys=("num_speculative_tokens",))
    assert space.parameter("ngram_tokens").target == space.parameter("mtp_tokens").target == tokens
    assert space.parameter("enforce_eager").omit == (False,)
    assert [c.why for c in space.constraints] == ["one", "two"]
    configuration = Configuration(
        values={
            "max_num_seqs": 8,
            "enforce_eager": False,
            "speculation": "mtp",
            "mtp_tokens": 2,
            "threads": 1,
        }
    )
    args = server_args(space, configuration)
    assert args.flags == (
        *("--max-model-len", "2048", "--dtype", "auto", "--cudagraph-capture-sizes", "1", "2", "4"),
        *("--compilation-config", '{"mode":3,"passes":[{"a":true}]}', "--no-enable-prefix-caching"),
        *("--max-num-seqs", "8", "--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'),
    )
    assert args.env == {"VLLM_USE_V1": "1", "NAME": "a b", "OMP_NUM_THREADS": "1"}


def test_the_name_is_that_of_the_file_by_default(tmp_path: Path) -> None:
    path = write(tmp_path, "schema = 1\n[parameters]\nextra = { type = 'bool' }\n", "my-space.toml")
    assert load_space(str(path), tmp_path / "elsewhere").name == "my-space"


def test_start_points_are_read_in_the_order_of_the_parameters(tmp_path: Path) -> None:
    plain = load_space(str(write(tmp_path, WHOLE)), tmp_path)
    text = "[[start]]\nname = 'a'\n[start.values]\nngram_tokens = 3\nspeculation = 'ngram'\nutil = 0\n"
    space = load_space(str(write(tmp_path, WHOLE + text)), tmp_path)
    (own,) = space.starts
    assert (own.name, own.why) == ("a", None)
    assert list(own.configuration.values.items()) == [
        ("util", 0.0),
        ("speculation", "ngram"),
        ("ngram_tokens", 3),
    ]
    # A study that is under way may be given one more.
    assert space.digest == plain.digest


HEAD = "schema = 1\n[parameters]\n"
INT = "{ type = 'int', low = 1, high = 8 }"


def parameter(spec: str, name: str = "extra") -> str:
    return f"{HEAD}first = {INT}\n{name} = {{ {spec} }}\n"


def fixed(line: str, table: str = "flags") -> str:
    return f"{HEAD}first = {INT}\n[fixed.{table}]\n{line}\n"


def constraint(line: str) -> str:
    return f"{HEAD}first = {INT}\n[[constraints]]\n{line}\n"


def start(lines: str) -> str:
    return (
        f"{HEAD}first = {INT}\nutil = {{ type = 'float', low = 0, high = 1 }}\nextra = {{ type = 'bool' }}\n"
        "tokens = { type = 'int', low = 1, high = 4, when = 'extra' }\n"
        f"[[constraints]]\nrequire = 'first < 8'\nwhy = 'w'\n[[start]]\n{lines}\n"
    )


WRONG = {
    "no schema": ("[parameters]\nextra = { type = 'bool' }\n", "schema", "is missing: write `schema = 1`"),
    "schema of another type": ("schema = '1'\n", "schema", "must be a whole number"),
    "newer schema": ("schema = 2\n", "schema", "newer autotune"),
    "schema 0": ("schema = 0\n", "schema", "no such version"),
    "no TOML": ("schema = 1\nname = x\n", None, "line 2"),
    "a key twice": ("schema = 1\nschema = 1\n", None, "line 2"),
    "a number of 5000 digits": ("schema = " + "9" * 5000, None, "is no TOML"),
    "nested 3000 deep": ("schema = " + "[" * 3000 + "]" * 3000, None, "nested too deeply"),
    "unknown key": ("schema = 1\nparameter = {}\n", "parameter", "did you mean `parameters`?"),
    "key of several lines": ('schema = 1\n"a\\nb" = 1\n', '"a\\nb"', "no such key"),
    "unknown key unlike any": ("schema = 1\nfoo = 1\n", "foo", "allowed are schema, name, parameters"),
    "nothing to search": ("schema = 1\n", "parameters", "is missing or empty"),
    "parameters a list": ("schema = 1\nparameters = [1]\n", "parameters", "must be a table"),
    "parameter a number": (HEAD + "extra = 1\n", "parameters.extra", "must be a table"),
    "empty name": ("schema = 1\nname = ''\n[parameters]\nextra = {type='bool'}\n", "name", "text in quotes"),
    "name with a dash": (parameter("type = 'bool'", "a-b"), "parameters.a-b", "a to z"),
    "name of the language": (parameter("type = 'bool'", "and"), "parameters.and", "a to z"),
    "no type": (parameter("low = 1"), "parameters.extra.type", "is missing; allowed are int, float"),
    "unknown type": (parameter("type = 'integer'"), "parameters.extra.type", "'integer' is no type"),
    "key of another type": (
        parameter("type = 'bool', choices = [1]"),
        "parameters.extra.choices",
        "no such key",
    ),
    "misspelt key": (
        parameter("type = 'int', lo = 1, high = 2"),
        "parameters.extra.lo",
        "did you mean `low`?",
    ),
    "low > high": (parameter("type = 'int', low = 9, high = 2"), "parameters.extra", "`low` <= `high`"),
    "log with low 0": (
        parameter("type = 'int', low = 0, high = 2, log = true"),
        "parameters.extra",
        "above 0",
    ),
    "log and step": (
        parameter("type = 'int', low = 1, high = 9, step = 2, log = true"),
        "parameters.extra",
        "cannot be combined",
    ),
    "step 0": (parameter("type = 'int', low = 1, high = 9, step = 0"), "parameters.extra", "above 0"),
    "step past high": (
        parameter("type = 'int', low = 1, high = 9, step = 3"),
        "parameters.extra",
        "whole steps",
    ),
    "no high": (parameter("type = 'int', low = 1"), "parameters.extra.high", "is missing"),
    "no low": (parameter("type = 'float', high = 1"), "parameters.extra.low", "is missing"),
    "float for an int": (
        parameter("type = 'int', low = 1.5, high = 2"),
        "parameters.extra.low",
        "whole number",
    ),
    "true for an int": (
        parameter("type = 'int', low = true, high = 2"),
        "parameters.extra.low",
        "whole number",
    ),
    "text for a float": (parameter("type = 'float', low = '1', high = 2"), "parameters.extra.low", "number"),
    "infinite": (parameter("type = 'float', low = 1, high = inf"), "parameters.extra.high", "finite"),
    "more than 64 bits": (
        parameter("type = 'int', low = 1, high = 99999999999999999999"),
        "parameters.extra.high",
        "whole number",
    ),
    "log of another type": (
        parameter("type = 'int', low=1, high=2, log = 1"),
        "parameters.extra.log",
        "true or false",
    ),
    "no choices": (parameter("type = 'categorical'"), "parameters.extra.choices", "is missing"),
    "empty choices": (
        parameter("type = 'categorical', choices = []"),
        "parameters.extra.choices",
        "not empty",
    ),
    "duplicate choices": (parameter("type = 'categorical', choices = [1, 1]"), "parameters.extra", "twice"),
    "choices equal to Optuna": (
        parameter("type = 'categorical', choices = [1, true]"),
        "parameters.extra",
        "twice",
    ),
    "nested choices": (
        parameter("type = 'categorical', choices = [[1]]"),
        "parameters.extra.choices",
        "lists text",
    ),
    "date as a choice": (
        parameter("type = 'categorical', choices = [2026-01-01]"),
        "parameters.extra.choices",
        "allowed are text",
    ),
    "NUL in a choice": (
        parameter(r'type = "categorical", choices = ["\u0000"]'),
        "parameters.extra.choices",
        "text",
    ),
    "choice that cannot be written": (
        parameter("type = 'categorical', choices = ['--']"),
        "parameters.extra.choices",
        "cannot be given",
    ),
    "omit what is no choice": (
        parameter("type = 'categorical', choices = ['a'], omit = 'b'"),
        "parameters.extra.omit",
        "not among the values",
    ),
    "omit by another type": (
        parameter("type = 'bool', omit = 0"),
        "parameters.extra.omit",
        "not among the values",
    ),
    "two targets": (
        parameter("type = 'bool', flag = '--extra', env = 'A'"),
        "parameters.extra.env",
        "one thing",
    ),
    "short flag": (parameter("type = 'bool', flag = '-a b'"), "parameters.extra.flag", "is no flag"),
    "negated flag": (
        parameter("type = 'bool', flag = '--no-extra'"),
        "parameters.extra.flag",
        "without `no-`",
    ),
    "wrong variable": (
        parameter("type = 'bool', env = 'A B'"),
        "parameters.extra.env",
        "no name of an environment",
    ),
    "json without a key": (parameter("type = 'bool', json = 'extra'"), "parameters.extra.json", "FLAG.KEY"),
    "json with an empty key": (
        parameter("type = 'bool', json = 'extra..b'"),
        "parameters.extra.json",
        "keys lead",
    ),
    "same target": (parameter("type = 'bool', flag = '--first'"), "parameters.extra", "set by first already"),
    "same target, one conditional": (
        parameter("type = 'bool', flag = '--first', when = 'first > 1'"),
        "parameters.extra",
        "`when` on both",
    ),
    "key inside a parameter": (
        parameter("type = 'bool', json = 'first.x'"),
        "parameters.extra",
        "which first sets as a whole",
    ),
    "key inside a fixed text": (
        parameter("type = 'bool', json = 'o.x'") + "[fixed.flags]\no = 'text'\n",
        "parameters.extra",
        "no JSON object",
    ),
    "bad expression": (
        parameter("type = 'bool', when = 'first >'"),
        "parameters.extra.when",
        "cannot be read",
    ),
    "call in an expression": (
        parameter("type = 'bool', when = 'exit()'"),
        "parameters.extra.when",
        "not allowed",
    ),
    "when on a later parameter": (
        parameter("type = 'bool', when = 'later > 1'") + f"later = {INT}\n",
        "parameters.extra.when",
        "no parameter before this one; allowed are first",
    ),
    "when on itself": (
        parameter("type = 'bool', when = 'extra'"),
        "parameters.extra.when",
        "no parameter before",
    ),
    "when that compares kinds": (
        parameter("type = 'bool', when = \"first == '1'\""),
        "parameters.extra.when",
        "where a number is needed",
    ),
    "constraint on nothing": (
        constraint("require = 'x > 1'\nwhy = 'w'"),
        "constraints[1].require",
        "`x` is no",
    ),
    "constraint that is no truth": (
        constraint("require = 'first'\nwhy = 'w'"),
        "constraints[1].require",
        "number",
    ),
    "constraint without a reason": (constraint("require = 'first > 1'"), "constraints[1].why", "is missing"),
    "constraint without a condition": (constraint("why = 'w'"), "constraints[1].require", "is missing"),
    "start without a name": (start("values = { first = 1 }"), "start[1].name", "is missing"),
    "start without values": (start("name = 'a'"), "start[1].values", "is missing or empty"),
    "start with another key": (start("name = 'a'\nvalue = 1"), "start[1].value", "did you mean `values`?"),
    "start of no parameter": (
        start("name = 'a'\nvalues = { fist = 1 }"),
        "start[1].values.fist",
        "did you mean `first`?",
    ),
    "start out of range": (
        start("name = 'a'\nvalues = { first = 9 }"),
        "start[1].values.first",
        "9 is not among the values",
    ),
    "start of another type": (
        start("name = 'a'\nvalues = { extra = 1 }"),
        "start[1].values.extra",
        "1 is not among the values",
    ),
    "start with text for a float": (
        start("name = 'a'\nvalues = { util = '1' }"),
        "start[1].values.util",
        "must be a whole number",
    ),
    "start of what takes no part": (
        start("name = 'a'\nvalues = { extra = false, tokens = 2 }"),
        "start[1].values.tokens",
        "takes no part here: `extra` does not hold",
    ),
    "start that does not make it take part": (
        start("name = 'a'\nvalues = { tokens = 2 }"),
        "start[1].values.tokens",
        "takes no part",
    ),
    "start that breaks a constraint": (
        start("name = 'a'\nvalues = { first = 8 }"),
        "start[1].values",
        "break `first < 8`: w",
    ),
    "constraint with another key": (constraint("expr = 'first > 1'"), "constraints[1].expr", "no such key"),
    "constraints a table": (
        f"{HEAD}extra = {INT}\n[constraints]\nrequire = 'extra > 1'\n",
        "constraints",
        "[[constraints]]",
    ),
    "fixed elsewhere": (
        f"{HEAD}extra = {INT}\n[fixed]\ndtype = 'auto'\n",
        "fixed.dtype",
        "allowed are flags, env",
    ),
    "fixed twice": (fixed("a-b = 1\na_b = 2"), "fixed.flags.a_b", "set twice"),
    "fixed list of dashes": (fixed("x = ['--host', '0.0.0.0']"), "fixed.flags.x", "begin with a dash"),
    "fixed negation": (fixed("no-x = true"), "fixed.flags.no-x", "without `no-`"),
    "fixed date": (fixed("x = 2026-01-01"), "fixed.flags.x", "allowed are text"),
    "fixed nan": (fixed("x = { y = [nan] }"), "fixed.flags.x.y", "finite"),
    "variable a list": (fixed("X = [1]", "env"), "fixed.env.X", "a variable is"),
    "host": (fixed("host = '0.0.0.0'"), "fixed.flags.host", "always on 127.0.0.1"),
    "host as a parameter": (
        parameter("type = 'categorical', choices = ['::']", "host"),
        "parameters.host",
        "127.0.0.1",
    ),
    "host abbreviated": (fixed("hos = '0.0.0.0'"), "fixed.flags.hos", "may read it as --host"),
    "host by a JSON key": (parameter("type = 'bool', json = 'host.x'"), "parameters.extra.json", "127.0.0.1"),
    "port": (
        parameter("type = 'int', low = 1, high = 2, flag = '--port'"),
        "parameters.extra.flag",
        "127.0.0.1",
    ),
    "api key": (fixed("api_key = 'x'"), "fixed.flags.api_key", "never stores"),
    "config": (fixed("config = 'f.yaml'"), "fixed.flags.config", "does not see"),
    "ssl": (fixed("ssl-keyfile = 'k'"), "fixed.flags.ssl-keyfile", "plain HTTP"),
    "host address": (fixed("VLLM_HOST_IP = '0.0.0.0'", "env"), "fixed.env.VLLM_HOST_IP", "127.0.0.1"),
    "own variable": (fixed("AUTOTUNE_TOKEN = '1'", "env"), "fixed.env.AUTOTUNE_TOKEN", "autotune's own"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    text, key, told = WRONG[case]
    write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        load_space("s.toml", tmp_path)
    error = caught.value
    assert (error.path, error.key) == ("s.toml", key)
    assert told in error.problem
    assert str(error) == f"s.toml: {key}: {error.problem}" if key else f"s.toml: {error.problem}"
    assert "\n" not in str(error)
    assert not error.problem.endswith(".")


SECRETS = ["HF_TOKEN", "OPENAI_API_KEY", "MY_SECRET", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "hf_token"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_and_not_shown(name: str, tmp_path: Path) -> None:
    write(tmp_path, fixed(rf'{name} = ["hunter2\u0000"]', "env"))
    with pytest.raises(FileError, match="set it in your environment; autotune never stores it") as caught:
        load_space("s.toml", tmp_path)
    assert "hunter2" not in str(caught.value)
    write(tmp_path, parameter(f"type = 'bool', env = '{name}'"))
    with pytest.raises(FileError, match="never stores it"):
        load_space("s.toml", tmp_path)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_MAX_BAD_WORDS_TOTAL_TOKENS", "KEYBOARD"])
def test_what_only_sounds_like_a_secret_is_allowed(name: str, tmp_path: Path) -> None:
    write(tmp_path, fixed(f"{name} = 1", "env"))
    assert server_args(load_space("s.toml", tmp_path), Configuration()).env == {name: "1"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"schema = 1 # \xe9\n")
    with pytest.raises(FileError, match="no UTF-8 text: its byte 13"):
        load_space("latin.toml", tmp_path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(FileError, match="is no file"):
        load_space("folder.toml", tmp_path)
    with pytest.raises(FileError, match="there is no such file"):
        load_space("missing.toml", tmp_path)
    with pytest.raises(FileError, match="there is no such file"):
        load_space("some/where", tmp_path)


def test_names(tmp_path: Path) -> None:
    (tmp_path / "search_spaces").mkdir()
    own = HEAD + f"extra = {INT}\n"
    write(tmp_path / "search_spaces", own, "mine.toml")
    assert load_space("mine", tmp_path).name == "mine"
    assert load_space("cpu-quickstart", tmp_path).parameters != load_space("mine", tmp_path).parameters
    write(tmp_path / "search_spaces", own, "cpu-quickstart.toml")
    assert load_space("cpu-quickstart", tmp_path).parameters == load_space("mine", tmp_path).parameters
    write(tmp_path, own, "plain")
    assert load_space("plain", tmp_path).name == "plain"
    with pytest.raises(UserError, match=r"no search space is called 'nope'; there are cpu-quickstart, mine,"):
        load_space("nope", tmp_path)


def test_an_error_in_a_shipped_or_own_file_names_it_as_the_user_would(tmp_path: Path) -> None:
    (tmp_path / "search_spaces").mkdir()
    write(tmp_path / "search_spaces", "schema = 9\n", "mine.toml")
    with pytest.raises(FileError) as caught:
        load_space("mine", tmp_path)
    assert caught.value.path == "search_spaces/mine.toml"


SHIPPED = sorted(path.stem for path in shipped_folder(SEARCH_SPACES).glob("*.toml"))


def test_there_are_shipped_spaces() -> None:
    assert "cpu-quickstart" in SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_spaces_can_be_searched(name: str, tmp_path: Path) -> None:
    space = load_space(name, tmp_path)
    assert space.name == name
    rng = Random(0)  # noqa: S311
    for _ in range(100):
        configuration = sample(space, rng, attempts=100)
        assert configuration is not None
        server_args(space, configuration)


def test_the_quickstart_can_fail_for_want_of_cache(tmp_path: Path) -> None:
    space = load_space("cpu-quickstart", tmp_path)
    sizes = space.parameter("kv_cache_memory_bytes").domain
    fixed_flags = {setting.target.name: setting.value for setting in space.fixed}
    # tools/make_tiny_model.py: 8 layers, 4 KV heads of 64 values, K and V, 2 bytes each.
    needed = fixed_flags["--max-model-len"] * 8 * 4 * 64 * 2 * 2
    assert isinstance(sizes, CategoricalDomain)
    smallest, middle, _ = sorted(sizes.choices)
    assert smallest < needed < middle
    assert fixed_flags["--kv-cache-memory-bytes"] > needed


def test_the_documented_space_is_one(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    write(tmp_path, examples[0], "space.toml")
    write(tmp_path, examples[-1], "study.toml")
    assert load_space("space.toml", tmp_path).name == "mine"
    assert load_study("study.toml", tmp_path).search_space == "mine"
