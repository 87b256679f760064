"""A conflict of settings on real vLLM: found out by the study itself, explained, and not run into again.

Prefix caching of a hybrid model together with DFlash dies at the first request (vLLM 0.32 on CPUs), though
the server reports that it is healthy. Each of the two alone works.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.domain.lesson import LessonForm
from autotune.wiring.open import open_store

ROOT = Path(__file__).parent.parent.parent
BUDGET_S = 420
"""A bound alone: the study is stopped as soon as it has gone on after the conflict was found."""

SPACE = """
schema = 1
name = "conflict"

[parameters]
enable_prefix_caching = { type = "bool" }
max_num_seqs = { type = "categorical", choices = [2, 4, 8] }

# The draft model's directory: vLLM sees by its name what it is.
[parameters.speculation]
type = "categorical"
choices = ["off", "dflash"]
json = "speculative_config.model"
omit = "off"

[parameters.draft_tokens]
type = "int"
low = 2
high = 4
json = "speculative_config.num_speculative_tokens"
when = "speculation == 'dflash'"

[fixed.flags]
enforce-eager = true
max-model-len = 512
kv-cache-memory-bytes = 134217728
"""
# With this seed the first drawn configuration has both.
STUDY = """
schema = 1
name = "conflict"
search_space = "space.toml"
objectives = ["out_tok_s@1"]
seed = 1
[workload]
prompt_tokens = 16
output_tokens = 8
streams = [1]
prompts = 4
min_window_s = 1
max_window_s = 2
[limits]
startup_s = 200
isolation_launches = 5
"""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * BUDGET_S)]

Trial = Mapping[str, object]


def _autotune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study that was stopped one trial after it had learned something."""
    folder = tmp_path_factory.mktemp("conflict")
    for directory, kind in (("model", "qwen35moe"), ("dflash", "dflash")):
        words = [sys.executable, ROOT / "tools" / "make_tiny_model.py", folder / directory, "--kind", kind]
        subprocess.run(words, check=True)
    (folder / "space.toml").write_text(SPACE)
    (folder / "study.toml").write_text(STUDY)
    words = [sys.executable, "-m", "autotune", "run", "model", "--study", "study.toml", "--no-finals"]
    with subprocess.Popen(
        [*words, "--budget", f"{BUDGET_S}s"], cwd=folder, text=True, stderr=subprocess.PIPE
    ) as running:
        assert running.stderr is not None
        said, learned = [], False
        for line in running.stderr:
            said.append(line)
            learned = learned or "taught lesson" in line
            if learned and "[took" in line:
                running.send_signal(signal.SIGINT)
                break
        said.append(running.stderr.read())
    assert learned, "".join(said)
    assert running.returncode == 130, "".join(said)
    return folder


def _trials(folder: Path) -> list[Trial]:
    trials: list[Trial] = json.loads(_autotune(folder, "show", "--json").stdout)["trials"]
    return trials


def _has_both(trial: Trial) -> bool:
    parameters = trial["parameters"]
    assert isinstance(parameters, dict)
    return parameters.get("speculation") == "dflash" and parameters.get("enable_prefix_caching", True)


def test_the_conflict_is_named_as_one_of_the_first_request(folder: Path) -> None:
    failed = [trial for trial in _trials(folder) if trial["failure"]]
    assert failed
    for trial in failed:
        failure = trial["failure"]
        assert isinstance(failure, dict)
        assert _has_both(trial)
        assert (failure["kind"], failure["phase"]) == ("incompatible", "first_request")
        assert failure["root_line"] == "TypeError: 'function' object is not subscriptable"
        assert failure["process"] == "Worker"


def test_the_settings_that_conflict_are_found_and_no_others(folder: Path) -> None:
    with open_store(str(folder / "studies/conflict.db")) as store:
        (lesson,) = store.lessons.all()
    assert lesson.finding.form is LessonForm.NO_GOOD
    assert lesson.finding.forbids.names == {"enable_prefix_caching", "speculative_config__model"}
    assert [t["origin"] for t in _trials(folder)[:3]] == ["baseline", "flip", "sampled"]
    assert "isolation" in [t["origin"] for t in _trials(folder)]


def test_dflash_is_measured_without_prefix_caching_and_the_study_goes_on(folder: Path) -> None:
    trials = _trials(folder)
    measured = [t for t in trials if t["state"] == "measured"]
    assert any("dflash" in str(t["argv"]) for t in measured)
    last_probe = max(i for i, t in enumerate(trials) if t["origin"] == "isolation")
    later = trials[last_probe + 1 :]
    assert later
    assert not any(_has_both(trial) for trial in later)


def test_each_failed_trial_is_explained_from_its_log_and_shown_on_one_screen(folder: Path) -> None:
    for trial in (t for t in _trials(folder) if t["failure"]):
        by_number = _autotune(folder, "explain", str(trial["number"]), "--json")
        by_log = _autotune(folder, "explain", str(trial["log_path"]), "--json")
        assert (by_number.returncode, by_log.returncode) == (0, 0)
        assert json.loads(by_number.stdout) == json.loads(by_log.stdout)
        assert json.loads(by_log.stdout)["phase"] == "first_request"
        shown = _autotune(folder, "show", str(trial["number"])).stdout
        assert sum(-(-len(line) // 80) for line in shown.splitlines()) <= 40
        assert "--no-enable-prefix-caching" in shown


def test_a_measured_trial_shows_no_failure(folder: Path) -> None:
    done = _autotune(folder, "explain", "0")
    assert done.returncode == 1
    assert "became ready and answered requests" in " ".join(done.stdout.split())
