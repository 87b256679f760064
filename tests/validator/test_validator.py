"""vLLM's own check of a configuration: what is an answer, what is none, and whether two are one."""

import os
from pathlib import Path

import pytest
from vllm_package import VllmPackage, install

from autotune.domain.launch import ServerArgs
from autotune.domain.validation import Accepted, NotKnown, Refused, Validation
from autotune.host.validator import VllmValidator


def ask(validator: VllmValidator, *flags: str, **env: str) -> Validation:
    return validator.validate(ServerArgs(flags=flags, env=env))


def effective(validator: VllmValidator, *flags: str, **env: str) -> dict[str, object]:
    answer = ask(validator, *flags, **env)
    assert isinstance(answer, Accepted), answer
    return dict(answer.effective)


def refusal(validator: VllmValidator, *flags: str, **env: str) -> str:
    answer = ask(validator, *flags, **env)
    assert isinstance(answer, Refused), answer
    return answer.text


def test_what_vllm_makes_of_a_configuration_is_told(validator: VllmValidator) -> None:
    told = effective(validator, "--enforce-eager", VLLM_LATE="now")
    assert told["scheduler_config.max_num_seqs"] == 8
    assert told["model"] == "tiny"
    assert told["eager"] is True
    assert told["late"] == told["env.VLLM_LATE"] == "now"
    assert told["env.VLLM_SET_BY_ITSELF"] == "8"


def test_a_default_that_is_given_makes_a_twin(validator: VllmValidator) -> None:
    plain = effective(validator)
    assert plain == effective(validator, "--max-num-seqs", "8")
    assert plain == effective(validator, "--root-path", "/")
    assert "instance_id" not in plain


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-seqs", "9"],
        ["--enforce-eager"],
        ["--log-requests"],  # does not reach vLLM's configuration
        ["--root-path", "/v2"],  # the API server's alone
        ["--api-key", "a"],
    ],
)
def test_whatever_differs_makes_no_twin(validator: VllmValidator, words: list[str]) -> None:
    assert effective(validator) != effective(validator, *words)


def test_variables_belong_to_what_is_compared(validator: VllmValidator) -> None:
    plain = effective(validator)
    assert plain != effective(validator, OMP_NUM_THREADS="2")
    assert effective(validator, OMP_NUM_THREADS="1") != effective(validator, OMP_NUM_THREADS="2")
    assert plain == effective(validator)


def test_a_key_is_compared_and_never_told(validator: VllmValidator) -> None:
    told = effective(validator, "--api-key", "geheim")
    assert "geheim" not in str(told)
    assert told != effective(validator, "--api-key", "anders")
    assert "hf_abc" not in refusal(validator, "--trouble", "secret")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nope", "1"], "unrecognized arguments: --nope 1"),
        (["--max-num-seqs", "many"], "argument --max-num-seqs: invalid int value: 'many'"),
        (["--root-path", "bad"], "ValueError: --root-path must not be bad"),
        (["--trouble", "value"], "ValueError: max_num_seqs of tiny is wrong and a second line"),
        (["--trouble", "assert"], 'AssertionError: if kind == "assert": assert kind == "other"'),
        (["--trouble", "todo"], "NotImplementedError: not with this model"),
        (["--trouble", "own"], "NotRetried: an error of vLLM's own"),
        (["--trouble", "key"], "ValueError: x is no setting"),
    ],
)
def test_what_vllm_does_not_take_is_refused_in_its_words(
    validator: VllmValidator, words: list[str], message: str
) -> None:
    assert refusal(validator, *words).splitlines()[-1] == message


def test_what_is_no_utf8_is_answered_all_the_same(validator: VllmValidator) -> None:
    name = os.fsdecode(b"\xff")
    assert isinstance(ask(validator, "--api-key", "a", "--root-path", name), Accepted)
    assert "argument" in refusal(validator, "--max-num-seqs", name)
    assert effective(validator, "--root-path", str(2**80))["asked.root_path"] == str(2**80)


def test_the_message_is_short(validator: VllmValidator) -> None:
    assert len(refusal(validator, "--trouble", "long").splitlines()[-1]) < 300


@pytest.mark.parametrize(
    "trouble",
    [
        "chain",  # an error of a file behind it
        "hidden",  # a missing package behind it, although it is not shown
        "json",  # a ValueError, but a file's
        "foreign",  # not raised by vLLM
        "memory",
        "absent",
        "os",
        "runtime",
        "exit",
        "exit1",
        "os-exit",
        "segfault",
        "random",  # not what it says again
    ],
)
def test_what_may_be_otherwise_at_the_launch_is_not_known(validator: VllmValidator, trouble: str) -> None:
    answer = ask(validator, "--trouble", trouble)
    assert isinstance(answer, NotKnown)
    assert answer.why
    assert isinstance(ask(validator), Accepted), "it goes on"


@pytest.mark.parametrize("words", [["--help"], ["--headless"], ["--omni"]])
def test_what_starts_no_server_is_not_known(validator: VllmValidator, words: list[str]) -> None:
    assert isinstance(ask(validator, *words), NotKnown)


def test_no_answer_depends_on_those_before_it(package: VllmPackage) -> None:
    questions = [
        ServerArgs(),
        ServerArgs(flags=("--max-num-seqs", "9"), env={"VLLM_LATE": "a"}),
        ServerArgs(flags=("--trouble", "value")),
        ServerArgs(env={"VLLM_LATE": "b"}),
        ServerArgs(flags=("--enforce-eager",)),
    ]
    with VllmValidator(install(), "tiny") as forwards, VllmValidator(install(), "tiny") as backwards:
        one = [forwards.validate(question) for question in questions]
        other = [backwards.validate(question) for question in reversed(questions)]
    assert one == other[::-1]
    assert isinstance(one[0], Accepted)
    assert one[0].effective["earlier_questions"] == 0


def test_a_variable_that_is_read_while_vllm_is_imported_decides_nothing(validator: VllmValidator) -> None:
    assert effective(validator, VLLM_EARLY="1") == {}, "what it would change is not seen"
    for name in ("VLLM_EARLY", "CUDA_VISIBLE_DEVICES", "NOBODY_KNOWS"):
        answer = ask(validator, "--trouble", "value", **{name: "1"})
        assert isinstance(answer, NotKnown)
        assert name in answer.why


def test_a_variable_that_a_module_reads_when_it_is_needed_first_decides_nothing(package: VllmPackage) -> None:
    package.write("vllm/needed.py", 'import os; STRICT = os.environ.get("VLLM_LATE") == "strict"')
    trouble = """
        def meet(kind, model):
            from vllm import needed
            if kind == "strict" or needed.STRICT: raise ValueError("not like that")
        """
    package.write("vllm/trouble.py", trouble)
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator, VLLM_LATE="strict"), NotKnown)
        assert isinstance(ask(validator, "--trouble", "strict", VLLM_LATE="a"), NotKnown)
        assert isinstance(ask(validator, "--trouble", "strict"), Refused)
        assert effective(validator, VLLM_LATE="a") == {}
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator, "--trouble", "strict", VLLM_LATE="a"), NotKnown), "asked first"


def test_variables_that_all_configurations_share_are_there_from_the_start(
    package: VllmPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LATE", "outside")
    shared = {"VLLM_EARLY": "1", "VLLM_LATE": "shared"}
    with VllmValidator(install(), "tiny", env=shared) as validator:
        told = effective(validator, **shared)
        assert (told["early"], told["late"]) == ("1", "shared")
        assert isinstance(ask(validator, "--trouble", "value", **shared), Refused)
        assert isinstance(ask(validator, "--trouble", "value"), NotKnown), "it was started with VLLM_EARLY"
        without = effective(validator, VLLM_EARLY="1")
        assert without["late"] == "outside"


def test_the_gpu_is_never_touched(package: VllmPackage) -> None:
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator, "--trouble", "cuda"), NotKnown)
    assert not Path(os.environ["HUNG"]).exists()


def test_the_same_question_is_put_once(package: VllmPackage) -> None:
    with VllmValidator(install(), "tiny") as validator:
        for _ in range(3):
            ask(validator, "--max-num-seqs", "3")
            ask(validator, "--max-num-seqs", "4", "--trouble", "value")
    assert Path(os.environ["ASKED"]).read_text().split() == ["asked"] * 4, "two forks each"


def test_what_could_not_be_told_is_asked_again(package: VllmPackage, tmp_path: Path) -> None:
    with VllmValidator(install(), str(tmp_path / "model")) as validator:
        assert isinstance(ask(validator, "--trouble", "model"), NotKnown)
        (tmp_path / "model").mkdir()
        assert isinstance(ask(validator, "--trouble", "model"), Accepted)
