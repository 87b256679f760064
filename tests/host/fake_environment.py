"""A virtual environment with a vLLM made of plain files."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

_CODE = {
    "vllm/__init__.py": "",
    # What the real one prints on stdout while it is imported must not be taken for an answer.
    "vllm/platforms.py": """
        import types
        print("Triton is installed, but")
        current_platform = types.SimpleNamespace(device_type="cuda")
        """,
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/launchers/__init__.py": "",
    "vllm/entrypoints/launchers/cli_args.py": """
        import argparse

        def make_arg_parser(parser):
            parser.add_argument("--max-num-seqs", "-s", type=int)
            parser.add_argument("--dtype", choices=["auto", None, "bfloat16"], default="auto")
            parser.add_argument("--sizes", choices=[1, 2], default=object())
            boolean = argparse.BooleanOptionalAction
            parser.add_argument("--enable-prefix-caching", action=boolean, default=True)
            return parser
        """,
    "vllm/entrypoints/cli/main.py": """
        import os, pathlib
        from importlib import metadata
        with pathlib.Path(os.environ["STARTS"]).open("a") as starts:
            starts.write("start ")
        print("INFO 1.5 plugins loaded")
        print(metadata.version("vllm"))
        """,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEnvironment:
    """Where the parts of it are; `starts` gets a word at each start of its `vllm`."""

    root: Path
    site: Path
    starts: Path

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def vllm(self) -> Path:
        return self.root / "bin/vllm"

    def write(self, name: str, text: str) -> Path:
        path = self.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def install(self, name: str, version: str, files: tuple[str, ...] = ()) -> Path:
        """Metadata of a distribution; returns its METADATA file."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        record = [f"{info}/METADATA", f"{info}/RECORD", *files]
        self.write(f"{info}/RECORD", "".join(f"{file},,\n" for file in record))
        return self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def script(self, first_lines: str) -> Path:
        """bin/vllm, beginning with these lines."""
        self.vllm.write_text(f"{first_lines}\nimport vllm.entrypoints.cli.main\n")
        self.vllm.chmod(0o755)
        return self.vllm

    def started(self) -> int:
        return self.starts.read_text().count("start") if self.starts.exists() else 0

    @classmethod
    def create(cls, root: Path, starts: Path) -> "FakeEnvironment":
        """A real virtual environment with nothing in it, not even pip."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return cls(root=root, site=root / "lib" / version / "site-packages", starts=starts)

    def add_vllm(self) -> None:
        """A vLLM 0.31.0 that starts, reports CUDA, and has the flags above."""
        for name, text in _CODE.items():
            self.write(name, text)
        self.install("vllm", "0.31.0")
        self.install("torch", "2.12.0+cu130")
        self.script(f"#!{self.python}")
