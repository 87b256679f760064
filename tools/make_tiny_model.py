"""Writes a small model with random weights that vLLM can serve, with nothing taken from the network.

    python tools/make_tiny_model.py demo/model [--kind llama] [--seed 0]

Run by an environment that has vLLM, because torch, transformers and tokenizers come with it. Its text is
noise, but its cost is not: it is large enough that settings matter on two CPU cores, and small enough that a
server starts as fast as its imports allow. The same seed gives the same weights. All kinds share a tokenizer.

    llama               dense
    qwen35moe           hybrid of linear and full attention, with experts and MTP; vLLM needs torchvision
    qwen35moe-ct4-g64   the same with 4-bit experts
    dflash              DFlash draft for any of these
    draft-llama         draft model for any of these
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tiny_models.kinds import KINDS
from tiny_models.tokenizer import VOCABULARY, tokenizer

# Kept beside the weights: what the model was made from, so that it is made again only when that changes.
_RECIPE = "tiny_model.json"


def main() -> None:
    """Make the model, unless it is already there."""
    parser = argparse.ArgumentParser(description="Write a small model with random weights.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", choices=sorted(KINDS), default="llama")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    kind = KINDS[arguments.kind]
    recipe = {"kind": arguments.kind, "seed": arguments.seed, "vocabulary": VOCABULARY, **kind.sizes}
    if _is_made(directory, recipe):
        print(f"{directory} is already there")
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    _be_quiet()
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".making-") as scratch:
        made = Path(scratch) / directory.name
        tokenizer().save_pretrained(made)
        kind.make(made, kind.sizes, arguments.seed)
        (made / _RECIPE).write_text(json.dumps(recipe))
        if directory.exists():
            shutil.rmtree(directory)
        made.replace(directory)
    size_mb = sum(f.stat().st_size for f in directory.iterdir()) / 1e6
    print(f"made {directory}: {arguments.kind}, {size_mb:.0f} MB")


def _be_quiet() -> None:
    """Without progress bars of transformers."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


def _is_made(directory: Path, recipe: Mapping[str, object]) -> bool:
    """Whether `directory` holds this very model. Ends the program when it holds something else."""
    if not directory.exists():
        return False
    try:
        found: object = json.loads((directory / _RECIPE).read_text())
    except (OSError, ValueError):
        sys.exit(f"{directory} exists, and was not made by this program; give another directory")
    return found == recipe


if __name__ == "__main__":
    main()
