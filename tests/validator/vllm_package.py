"""A `vllm` package of a few lines: what the check of a configuration calls, and every way to go wrong."""

import sys
from pathlib import Path
from textwrap import dedent

from autotune.domain.machine import Device, VllmInstall

CODE = {
    "torch/__init__.py": "",
    "torch/cuda.py": """
        import os, pathlib
        def _lazy_init(): pathlib.Path(os.environ["HUNG"]).touch()
        def use(): _lazy_init()
        """,
    "vllm/__init__.py": 'print("Triton is installed, but"); print(\'{"ready": "no, this is noise"}\')',
    # VLLM_EARLY is looked at once, VLLM_LATE when it is used.
    "vllm/envs.py": """
        import os
        EARLY = os.environ.get("VLLM_EARLY")
        environment_variables = {"VLLM_EARLY": lambda: EARLY, "VLLM_LATE": lambda: os.getenv("VLLM_LATE")}
        """,
    "vllm/usage/__init__.py": "",
    "vllm/usage/usage_lib.py": """
        import enum
        class UsageContext(str, enum.Enum):
            OPENAI_API_SERVER = "api"
        """,
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
        import dataclasses, os, pathlib, uuid
        import torch.cuda
        from vllm import trouble
        SEEN = []
        @dataclasses.dataclass
        class SchedulerConfig:
            max_num_seqs: int
            sizes: list
        @dataclasses.dataclass
        class VllmConfig:
            scheduler_config: SchedulerConfig
            model: str
            eager: bool
            late: str
        @dataclasses.dataclass
        class AsyncEngineArgs:
            model: str
            max_num_seqs: int
            enforce_eager: bool
            trouble: str
            log_requests: bool
            api_key: str
            @classmethod
            def from_cli_args(cls, args):
                return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})
            def create_engine_config(self, usage_context):
                print("INFO building")
                if "ASKED" in os.environ:
                    with pathlib.Path(os.environ["ASKED"]).open("a") as asked:
                        asked.write("asked ")
                trouble.meet(self.trouble, self.model)
                from vllm import envs
                seqs = self.max_num_seqs or 8
                config = VllmConfig(SchedulerConfig(seqs, [1, seqs]), self.model, self.enforce_eager, "")
                config.late = envs.environment_variables["VLLM_LATE"]()
                config.early = envs.EARLY
                config.instance_id = uuid.uuid4().hex
                # What a process that is asked twice would get wrong.
                config.earlier_questions = len(SEEN)
                SEEN.append(seqs)
                os.environ["VLLM_SET_BY_ITSELF"] = str(seqs)
                return config
        """,
    "vllm/trouble.py": """
        import ctypes, os, pathlib, sys, time
        class NotRetried(ValueError): pass
        def meet(kind, model):
            if kind == "value": raise ValueError(f"max_num_seqs of {model} is wrong\\nand a second line")
            if kind == "secret": raise ValueError("--api-key hf_abcdefgh12345 is no good")
            if kind == "long": raise ValueError("word " * 200)
            if kind == "assert": assert kind == "other"
            if kind == "todo": raise NotImplementedError("not with this model")
            if kind == "own": raise NotRetried("an error of vLLM's own")
            if kind == "key":
                try: {}["x"]
                except KeyError: raise ValueError("x is no setting")
            if kind == "chain":
                try: open("/no/such/file")
                except OSError as error: raise ValueError("the draft is wrong") from error
            if kind == "hidden":
                try: import no_such_module
                except ImportError: raise ValueError("the kernel is wrong") from None
            if kind == "json":
                import json
                json.loads("{")
            if kind == "foreign":
                import fractions
                fractions.Fraction("x")
            if kind == "memory": raise ValueError("Free memory on device is less than desired")
            if kind == "absent": raise ValueError("the draft model does not exist")
            if kind == "os": raise OSError("no network")
            if kind == "runtime": raise RuntimeError("out of memory")
            if kind == "exit": sys.exit(0)
            if kind == "exit1": sys.exit("no")
            if kind == "os-exit": os._exit(0)
            if kind == "segfault": ctypes.string_at(0)
            if kind == "hang": time.sleep(3600)
            if kind == "hang-once":
                path = pathlib.Path(os.environ["HUNG"])
                if not path.exists():
                    path.touch()
                    time.sleep(3600)
            if kind == "model" and not pathlib.Path(model).exists(): raise OSError("not downloaded yet")
            if kind == "cuda":
                import torch.cuda
                torch.cuda.use()
            if kind == "random": raise ValueError(f"bad luck {time.monotonic_ns()}")
        """,
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/serve.py": """
        class Serve:
            def subparser_init(self, subparsers):
                parser = subparsers.add_parser("serve")
                parser.add_argument("model_tag", nargs="?")
                parser.add_argument("--model", default="some/model")
                parser.add_argument("--max-num-seqs", type=int)
                parser.add_argument("--enforce-eager", action="store_true")
                parser.add_argument("--trouble", choices=None)
                parser.add_argument("--log-requests", action="store_true")
                parser.add_argument("--headless", action="store_true")
                parser.add_argument("--api-key")
                parser.add_argument("--root-path", default="/")
                return parser
            def validate(self, args):
                if args.root_path == "bad": raise ValueError("--root-path must not be bad")
        def cmd_init():
            return [Serve()]
        """,
}


class VllmPackage:
    """The package in a folder that the interpreter of the tests finds first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in CODE.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    def drop(self, name: str) -> None:
        (self.folder / name).unlink()


def install(python: str | None = sys.executable) -> VllmInstall:
    """An installed vLLM with this interpreter."""
    return VllmInstall(
        command=("vllm",), python=python, version="0.31.0", torch_version=None, device=Device.CPU
    )
