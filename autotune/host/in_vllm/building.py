"""Has vLLM build its configuration of some words and variables, as `vllm serve` would."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypedDict
from unittest import mock

from autotune.host.in_vllm.reading import Reading
from autotune.host.in_vllm.refusal import judge, parser_errors

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from autotune.host.in_vllm.reading import Names, Scalar

    Pairs = list[tuple[Names, Scalar]]


class Said(TypedDict, total=False):
    """What one fork says: `refused`, `not_known`, or the parts of an acceptance; and how it came by it."""

    refused: str
    not_known: str
    asked: Pairs
    """The words as parsed."""
    made: Pairs
    """vLLM's configuration."""
    env: Pairs
    """The variables of the question, and those vLLM has set itself."""
    engine: list[str]
    """Names of `asked` that vLLM's configuration is made of, unless it has something unreadable there."""
    readable: bool
    """Whether `asked` has all that was asked."""
    late: list[str]
    """Variables that could not be set in time."""
    modules: list[str]
    """Modules that had to be imported."""


class _EngineArgs(Protocol):
    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> _EngineArgs: ...
    def create_engine_config(self, usage_context: object) -> object: ...


class _Command(Protocol):
    def subparser_init(self, subparsers: object) -> object: ...
    def validate(self, args: argparse.Namespace) -> None: ...


# vLLM moves it from version to version; the newest place comes first.
_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
# Variables of libraries of threads and memory: read when those are loaded, and no setting hangs on them.
_THREADS = ("OMP_", "KMP_", "GOMP_", "MKL_", "MALLOC_", "TCMALLOC_", "LD_PRELOAD")
_TOPS = ("vllm.", "transformers.")


class NotAsked(Exception):
    """These words start something else than one server."""


class Vllm:
    """The imported vLLM. Raises what the import raises, and AttributeError where something is missing."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        sys.argv = ["vllm", "serve"]
        with self._noting_reads():
            serve = importlib.import_module("vllm.entrypoints.cli.serve")
            envs = importlib.import_module("vllm.envs")
            usage = importlib.import_module("vllm.usage.usage_lib")
            arg_utils = importlib.import_module("vllm.engine.arg_utils")
            parser: argparse.ArgumentParser = _module_with("FlexibleArgumentParser").FlexibleArgumentParser()
        self._engine_args: type[_EngineArgs] = arg_utils.AsyncEngineArgs
        commands: list[_Command] = serve.cmd_init()
        (self._command,) = commands
        self._command.subparser_init(parser.add_subparsers(dest="subparser"))
        self._parser = parser
        self._usage: object = usage.UsageContext.OPENAI_API_SERVER
        self._lazy: set[str] = set(envs.environment_variables)
        _without_cuda()
        self._folder = os.path.dirname(sys.modules["vllm"].__file__ or "?")  # noqa: PTH120 (compared as text)

    @contextlib.contextmanager
    def _noting_reads(self) -> Iterator[None]:
        """Note each variable that Python code looks at: to set it afterwards may be too late."""
        original = type(os.environ).__getitem__

        def noting(environ: os._Environ[str], name: str) -> str:
            self._read.add(os.fsdecode(name))
            return original(environ, name)

        with mock.patch.object(type(os.environ), "__getitem__", noting):
            yield

    def bring_in(self, modules: list[str]) -> None:
        """Import those that can be."""
        with self._noting_reads():
            for name in modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def answer(self, argv: list[str], env: Mapping[str, str | None]) -> Said:
        """What vLLM says of these words and variables. Leaves a changed process behind: call it in a fork."""
        imported = set(sys.modules)
        late = sorted(n for n, value in env.items() if os.environ.get(n) != value and not self._heeds(n))
        for name, value in env.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        try:
            answer = self._build(argv, env)
        except BaseException as error:  # noqa: BLE001 (a vLLM may raise anything)
            text, sure = judge(error, self._folder)
            answer = Said(refused=text) if sure else Said(not_known=text)
        fresh = [name for name in sys.modules if name not in imported and name.startswith(_TOPS)]
        answer["late"] = late
        answer["modules"] = fresh
        return answer

    def _heeds(self, name: str) -> bool:
        """Whether a variable is certain to count as much now as it does at the start of a server."""
        return name not in self._read and (name in self._lazy or name.startswith(_THREADS))

    def _build(self, argv: list[str], env: Mapping[str, str | None]) -> Said:
        """The parts of an acceptance. Raises whatever vLLM raises."""
        sys.argv = ["vllm", "serve", *argv]
        if "--omni" in argv:
            raise NotAsked("--omni starts another program")
        before = dict(os.environ)
        with parser_errors():
            args = self._parser.parse_args(sys.argv[1:])
        self._command.validate(args)
        if getattr(args, "headless", False) or getattr(args, "grpc", False):
            raise NotAsked("--headless and --grpc start another kind of server")
        args.model = getattr(args, "model_tag", None) or args.model
        engine_args = self._engine_args.from_cli_args(args)
        asked = [Reading().read({name: value}) for name, value in {**vars(args), **vars(engine_args)}.items()]
        config = engine_args.create_engine_config(usage_context=self._usage)
        made = Reading().read(vars(config))
        changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
        unread = {name for names in made.opaque for name in names[:2]}
        return Said(
            asked=[pair for reading in asked for pair in reading.values.items()],
            made=[*made.values.items()],
            env=[*Reading().read({**changed, **env}).values.items()],
            engine=sorted(vars(engine_args).keys() - unread),
            readable=not any(reading.opaque for reading in asked),
        )


def _without_cuda() -> None:
    """From now on CUDA cannot be touched: that would take GPU memory away from the servers (0.5 GB)."""

    def refuse() -> None:
        raise RuntimeError("vLLM would use the GPU to tell")

    cuda = sys.modules.get("torch.cuda")
    if cuda is not None:
        vars(cuda)["_lazy_init"] = refuse  # what each use of CUDA in torch goes through


def _module_with(name: str) -> ModuleType:
    """The first of the places of the parser that has `name`, else ImportError."""
    for place in _PARSERS:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(place)
            if hasattr(module, name):
                return module
    raise ImportError(f"{name} is in none of {', '.join(_PARSERS)}")
