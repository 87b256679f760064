"""tools/make_tiny_model.py: what it writes, and what it leaves alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.host.model import read_model

_SCRIPT = Path(__file__).parents[2] / "tools/make_tiny_model.py"


def _make(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, _SCRIPT, directory, *words], capture_output=True, text=True)


def test_what_it_did_not_make_it_does_not_replace(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text("{}")
    done = _make(tmp_path / "mine")
    assert done.returncode == 1
    assert "was not made by this program" in done.stderr
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["config.json"]


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    assert _make(tmp_path / "m", "--kind", "mamba").returncode == 2
    assert not (tmp_path / "m").exists()


@pytest.mark.e2e
def test_the_same_seed_makes_the_same_model_and_makes_it_once(tmp_path: Path) -> None:
    first, second, other = tmp_path / "a", tmp_path / "sub/b", tmp_path / "c"
    for directory, seed in [(first, "0"), (second, "0"), (other, "1")]:
        done = _make(directory, "--seed", seed)
        assert done.returncode == 0, done.stderr
    files = {p.name: p.read_bytes() for p in first.iterdir()}
    assert {p.name: p.read_bytes() for p in second.iterdir()} == files
    assert (other / "model.safetensors").read_bytes() != files["model.safetensors"]
    assert (other / "tokenizer.json").read_bytes() == files["tokenizer.json"]

    model = read_model(str(first))
    assert (model.architecture, model.max_model_len) == ("LlamaForCausalLM", 8192)
    assert model.weight_bytes == len(files["model.safetensors"])
    tokenizer = json.loads(files["tokenizer.json"])
    assert len(tokenizer["model"]["vocab"]) == 4096

    made_at = (first / "model.safetensors").stat().st_mtime_ns
    assert "already there" in _make(first).stdout
    assert (first / "model.safetensors").stat().st_mtime_ns == made_at
    assert "made" in _make(first, "--seed", "1").stdout
    assert (first / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert not list(tmp_path.glob(".making-*"))
