"""Reaping: what an autotune that was killed left behind is ended, by its mark alone, and nothing else."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from real_servers import Start, alive, is_refused, tree_of, until

from autotune.domain.server import LaunchPlan, ServerMark
from autotune.server.launcher import LocalLauncher

TUNER = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from autotune.domain.launch import ServerArgs
from autotune.server.launcher import LocalLauncher
folder, scenario, *command = sys.argv[1:]
launcher = LocalLauncher(tuple(command), "model", Path(folder, "logs"), cache_dir=Path(folder, "cache"))
server = launcher.start(launcher.prepare(3, ServerArgs(env={"FAKE_VLLM_SCENARIO": scenario})))
print(json.dumps(asdict(server.mark)), flush=True)
time.sleep(600)
"""


def orphaned(
    fake_vllm: tuple[str, ...], folder: Path, scenario: str
) -> tuple[ServerMark, set[psutil.Process]]:
    """A server whose autotune was killed with SIGKILL while it was serving."""
    words = [sys.executable, "-c", TUNER, str(folder), json.dumps(scenario), *fake_vllm]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        mark = ServerMark(**json.loads(tuner.stdout.readline()))
        until(lambda: not is_refused(mark.port))
        tree = tree_of(mark)
        tuner.kill()
    return mark, tree


@pytest.mark.parametrize("scenario", ["normal", "grandchild_own_session", "grandchild_scrubbed"])
@pytest.mark.parametrize("pid_was_saved", [True, False])
def test_reap(
    launcher: LocalLauncher,
    fake_vllm: tuple[str, ...],
    start: Start,
    tmp_path: Path,
    scenario: str,
    pid_was_saved: bool,
) -> None:
    bystander = tree_of(start().mark)
    mark, tree = orphaned(fake_vllm, tmp_path, scenario)
    assert alive(tree) == tree
    if not pid_was_saved:
        mark = replace(mark, pid=None, pid_started_s=None)

    ended = launcher.reap(mark, grace_s=5)

    assert set(ended) == {process.pid for process in tree}
    assert alive(tree) == set()
    assert is_refused(mark.port)
    assert "Application shutdown complete" in Path(mark.log_path).read_text(), "it was asked first"
    assert not Path(mark.tmp_dir).exists()
    assert alive(bystander) == bystander
    assert launcher.reap(mark, grace_s=5) == ()


def test_reap_when_the_first_process_is_gone_too(
    launcher: LocalLauncher, fake_vllm: tuple[str, ...], tmp_path: Path
) -> None:
    mark, tree = orphaned(fake_vllm, tmp_path, "grandchild_scrubbed")
    psutil.Process(mark.pid).kill()
    until(lambda: len(alive(tree)) == 2)
    assert len(launcher.reap(mark, grace_s=1)) == 2
    assert alive(tree) == set()


def test_after_a_reboot_there_is_nothing_to_reap(launcher: LocalLauncher, start: Start) -> None:
    server = start()
    tree = tree_of(server.mark)
    assert launcher.reap(replace(server.mark, boot_id="another", tmp_dir="/nonexistent"), grace_s=0) == ()
    assert alive(tree) == tree


def test_reap_of_a_server_that_was_never_spawned(launcher: LocalLauncher, plan: LaunchPlan) -> None:
    assert launcher.reap(plan.mark, grace_s=5) == ()
    assert not Path(plan.mark.tmp_dir).exists()
