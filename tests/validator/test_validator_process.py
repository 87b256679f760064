"""The process that vLLM's check runs in: it hangs, dies, is started wrongly, and outlives nobody."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from vllm_package import VllmPackage, install

from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.trial import Interruption
from autotune.domain.validation import Accepted, NotKnown, Refused, Validation
from autotune.host.validator import VllmValidator

HERE = Path(__file__).parent
WITHIN_S = 30.0


def ask(validator: VllmValidator, *flags: str) -> Validation:
    return validator.validate(ServerArgs(flags=flags))


def wait_for(holds: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + WITHIN_S
    while not holds() and time.monotonic() < end_s:
        os.sched_yield()
    return holds()


def in_session(pid: int) -> list[int]:
    """Living processes of the session that `pid` leads or led."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def processes() -> list[psutil.Process]:
    return psutil.Process().children()


def test_without_an_interpreter_nothing_is_started() -> None:
    with VllmValidator(install(python=None), "tiny") as validator:
        assert processes() == []
        assert isinstance(ask(validator), NotKnown)


def test_an_interpreter_that_cannot_be_run_is_not_known() -> None:
    with VllmValidator(install(python="/no/such/python"), "tiny") as validator:
        answer = ask(validator)
        assert isinstance(answer, NotKnown)
        assert "/no/such/python" in answer.why


def test_vllm_is_imported_in_the_background(package: VllmPackage) -> None:
    package.write("vllm/__init__.py", "import time; time.sleep(3600)")
    with VllmValidator(install(), "tiny", startup_s=0.2) as validator:
        assert len(processes()) == 1
        assert isinstance(ask(validator), NotKnown), "in bounded time"
        assert processes() == [], "an import that hangs would hang again"


@pytest.mark.parametrize(
    "name",
    [
        "vllm/entrypoints/cli/serve.py",
        "vllm/usage/usage_lib.py",
        "vllm/envs.py",
        "vllm/utils/argparse_utils.py",
    ],
)
def test_a_vllm_that_is_not_understood_is_not_known(package: VllmPackage, name: str) -> None:
    package.drop(name)
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator), NotKnown)
        assert processes() == []


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 9)",
        "raise RuntimeError('no device')",
        "raise SystemError",
    ],
)
def test_a_vllm_whose_import_fails_is_not_known(package: VllmPackage, text: str) -> None:
    package.write("vllm/__init__.py", text)
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator), NotKnown)
        assert isinstance(ask(validator), NotKnown)


def test_an_older_place_of_the_parser_is_found(package: VllmPackage) -> None:
    package.drop("vllm/utils/argparse_utils.py")
    package.write("vllm/utils/__init__.py", "from argparse import ArgumentParser as FlexibleArgumentParser")
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator), Accepted)


def test_a_module_in_the_working_directory_hides_nothing(
    package: VllmPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("vllm.py", "json.py", "autotune.py"):
        (tmp_path / name).write_text("raise RuntimeError('the wrong one')")
    with VllmValidator(install(), "tiny") as validator:
        assert isinstance(ask(validator), Accepted)


def test_a_question_that_hangs_costs_one_start_and_only_one(package: VllmPackage) -> None:
    with VllmValidator(install(), "tiny", question_s=1.0) as validator:
        assert isinstance(ask(validator), Accepted)
        (first,) = processes()
        assert isinstance(ask(validator, "--trouble", "hang"), NotKnown)
        (second,) = processes()
        assert second != first
        assert wait_for(lambda: not in_session(first.pid))
        assert isinstance(ask(validator, "--trouble", "hang"), NotKnown), "known by now, and not asked again"
        assert isinstance(ask(validator, "--trouble", "value"), Refused), "the new process is asked"
        assert isinstance(ask(validator, "--max-num-seqs", "5", "--trouble", "hang"), NotKnown)
        assert processes() == []
        assert wait_for(lambda: not in_session(second.pid))
        assert isinstance(ask(validator, "--max-num-seqs", "6"), NotKnown), "nobody is asked any more"
        assert isinstance(ask(validator), Accepted), "but what is known stays so"


def test_a_process_that_is_killed_is_started_once_more(package: VllmPackage) -> None:
    with VllmValidator(install(), "tiny") as validator:
        for number, known in enumerate((Accepted, NotKnown, Accepted, NotKnown, NotKnown)):
            assert isinstance(ask(validator, "--max-num-seqs", str(number + 1)), known)
            if known is Accepted:
                os.killpg(processes()[0].pid, signal.SIGKILL)


def test_closed_it_leaves_nothing_and_knows_nothing(package: VllmPackage) -> None:
    validator = VllmValidator(install(), "tiny")
    assert isinstance(ask(validator), Accepted)
    (process,) = processes()
    validator.close()
    validator.close()
    assert wait_for(lambda: not in_session(process.pid))
    assert isinstance(ask(validator, "--enforce-eager"), NotKnown)


def test_an_interrupt_ends_a_wait(package: VllmPackage) -> None:
    interrupt = Interrupt(time.monotonic, time.monotonic() + 3600)
    with VllmValidator(install(), "tiny", interrupt=interrupt) as validator:
        assert isinstance(ask(validator), Accepted)
        interrupt.request(Interruption.USER)
        assert isinstance(ask(validator, "--trouble", "hang"), NotKnown)
        assert processes() == []


def start(trouble: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(HERE / "own_a_validator.py"), trouble, *words]
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(HERE)])
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("trouble", ["import", "hang"])
def test_a_killed_autotune_leaves_nothing_behind(package: VllmPackage, trouble: str) -> None:
    if trouble == "import":
        package.write("vllm/__init__.py", "import time; time.sleep(3600)")
    with start(trouble) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert owner.stdout.readline() == "asking\n"
        assert wait_for(lambda: len(in_session(pid)) >= 2), "vLLM, and who watches over it"
        owner.kill()
    assert wait_for(lambda: not in_session(pid))


def test_ctrl_c_reaches_autotune_and_not_vllm(package: VllmPackage) -> None:
    with start("value", "keep") as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        lines = [owner.stdout.readline() for _ in range(3)]
        assert lines[1:] == ["asking\n", "Refused\n"]
        os.killpg(owner.pid, signal.SIGINT)
        assert owner.communicate("\n")[0] == "Accepted\n"
    assert owner.returncode == 0


def test_ctrl_c_ends_a_wait_for_vllm(package: VllmPackage) -> None:
    with start("hang") as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert owner.stdout.readline() == "asking\n"
        os.killpg(owner.pid, signal.SIGINT)
        assert owner.stdout.readline() == "NotKnown\n"
    assert owner.returncode == 0
    assert wait_for(lambda: not in_session(pid))
