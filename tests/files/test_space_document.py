"""A space kept with its study is read back as the same space."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders import environment

from autotune.decide.space.default_space import default_space
from autotune.domain.machine import Device, Environment, Gpu, Model
from autotune.domain.workload import Workload
from autotune.files.space_document import read_document, space_document
from autotune.files.spaces import load_space


def _on_gpu() -> Environment:
    base = environment()
    gpu = Gpu(index=0, name="NVIDIA RTX 3090", memory_bytes=24 * 2**30)
    return Environment(
        machine=replace(base.machine, gpus=(gpu,)), vllm=replace(base.vllm, device=Device.CUDA)
    )


@pytest.mark.parametrize("environment", [environment(), _on_gpu()], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "model",
    [
        Model(name="org/unknown"),
        Model(name="m", architecture="A", max_model_len=32768, has_mtp=True, weight_bytes=30 * 2**30),
    ],
    ids=["unknown", "known"],
)
def test_a_derived_space_comes_back(environment: Environment, model: Model) -> None:
    space = default_space(environment.machine, environment.vllm, model, Workload())
    again = read_document(space_document(space), "study.db")
    assert replace(again, left_out=space.left_out) == space
    assert again.digest == space.digest


def test_a_space_from_a_file_comes_back() -> None:
    space = load_space("cpu-quickstart", Path.cwd())
    assert read_document(space_document(space), "study.db") == space


def test_start_points_come_back(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    values = "values = { max_num_seqs = 4, util = 0.5 }"
    path.write_text(
        "schema = 1\n[parameters]\nmax_num_seqs = { type = 'int', low = 1, high = 8 }\n"
        "util = { type = 'float', low = 0, high = 1 }\n"
        f"[[start]]\nname = 'a'\nwhy = 'w'\n{values}\n[[start]]\nname = 'b'\n{values}\n"
    )
    space = load_space(str(path), tmp_path)
    assert [start.why for start in space.starts] == ["w", None]
    assert read_document(space_document(space), "study.db") == space
