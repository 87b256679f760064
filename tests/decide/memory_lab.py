"""Recorded logs as trials, and models and machines to estimate memory of."""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from builders import environment, failed, measured, record
from model_configs import CONFIGS

from autotune.decide.effective import effective
from autotune.decide.memory.estimate import MemoryModel, memory_model
from autotune.domain.effective import Observed
from autotune.domain.launch import server_args
from autotune.domain.machine import Device, Environment, Gpu, Model
from autotune.domain.space import CategoricalDomain, Parameter, SearchSpace, Target, TargetKind, Value
from autotune.domain.trial import TrialRecord
from autotune.files.effective import VLLM_EFFECTIVE, read_effective
from autotune.files.rules import VLLM_RULES, read_rules
from autotune.host.model_shape import read_shape

LOGS = Path(__file__).parent.parent / "data" / "logs"
BOOK, RULES = read_effective(VLLM_EFFECTIVE), read_rules(VLLM_RULES)
GIB = 2**30
H200_BYTES = round(139.8 * GIB)


def model(name: str, weight_bytes: int | None = None) -> Model:
    """One of the configs, as it would be read from a directory."""
    config = CONFIGS[name]
    shape, length = read_shape(config), config["max_position_embeddings"]
    assert shape is not None
    assert isinstance(length, int)
    return Model(name=name, max_model_len=length, shape=shape, weight_bytes=weight_bytes)


def on_cpu(memory_bytes: int = round(23.59 * GIB), version: str = "0.32.0") -> Environment:
    base = environment()
    return replace(
        base,
        machine=replace(base.machine, memory_bytes=memory_bytes),
        vllm=replace(base.vllm, version=version),
    )


def on_gpu(memory_bytes: int = H200_BYTES, version: str = "0.26.0", name: str = "NVIDIA H200") -> Environment:
    base = environment()
    gpu = Gpu(index=0, name=name, memory_bytes=memory_bytes)
    return replace(
        base,
        machine=replace(base.machine, gpus=(gpu,)),
        vllm=replace(base.vllm, version=version, device=Device.CUDA),
    )


def space_of(names: Iterable[str]) -> SearchSpace:
    """A space whose parameters are these settings, so that a configuration can give each a value."""
    return SearchSpace(name="lab", parameters=tuple(_parameter(name) for name in names))


def _parameter(name: str) -> Parameter:
    flag, *keys = name.split("__")
    if name.isupper():
        target = Target(kind=TargetKind.ENV, name=name)
    elif keys:
        target = Target(kind=TargetKind.JSON, name="--" + flag.replace("_", "-"), keys=tuple(keys))
    else:
        target = Target(kind=TargetKind.FLAG, name="--" + flag.replace("_", "-"))
    return Parameter(name=name, domain=CategoricalDomain(choices=("any",)), target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A log: what it was started with, and the trial it makes."""

    settings: Mapping[str, Value]
    model: Model
    draft: Model | None
    trial: TrialRecord

    @property
    def facts(self) -> Mapping[str, Value]:
        assert self.trial.effective is not None
        return self.trial.effective.facts

    @property
    def memory(self) -> MemoryModel:
        here = on_cpu() if str(self.trial.log_path).startswith("cpu") else on_gpu()
        memory = memory_model(here, self.model, self.draft)
        assert memory is not None
        return memory


def _text(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(errors="replace")


@cache
def recorded(name: str) -> Recorded:
    """The log below tests/data/logs."""
    text = _text(name)
    arguments = re.search(r"non-default args: (\{.*\})", text)
    assert arguments is not None
    given: dict[str, Value] = {}
    for key, value in ast.literal_eval(arguments[1]).items():
        for inner, item in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(item, bool | int | float | str):
                given[f"{key}__{inner}" if inner else key] = item
    if space := re.search(r'"VLLM_CPU_KVCACHE_SPACE": "(\d+)"', text.split("\n", 1)[0]):
        given["VLLM_CPU_KVCACHE_SPACE"] = int(space[1])
    names = {"model", "model_tag", "port", "host", "served_model_name"}
    settings = {key: value for key, value in given.items() if key not in names}
    drafted = settings.get("speculative_config__model")
    draft = replace(model(Path(str(drafted)).name), name=str(drafted)) if drafted else None
    device = on_cpu() if name.startswith("cpu") else on_gpu()
    trial = record(0, measured(s1=1.0) if "KV cache size" in text else failed(), settings)
    args = server_args(space_of(settings), trial.configuration)
    observed = Observed(argv=("vllm", "serve", *args.flags), env=args.env, log=text, metrics=None)
    trial = replace(
        trial,
        log_path=name,
        effective=effective(observed, BOOK, RULES, device),
    )
    return Recorded(settings=settings, model=model(Path(str(given["model"])).name), draft=draft, trial=trial)
