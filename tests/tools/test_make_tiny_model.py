"""tools/make_tiny_model.py: what it writes, and what it leaves alone."""

import json
import subprocess
import sys
from collections.abc import Mapping
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


def _config(directory: Path) -> Mapping[str, object]:
    config: Mapping[str, object] = json.loads((directory / "config.json").read_text())
    return config


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A model of each kind that is not like the first."""
    folder = tmp_path_factory.mktemp("kinds")
    made = {kind: folder / kind for kind in ("qwen35moe", "qwen35moe-ct4-g64", "dflash")}
    for kind, directory in made.items():
        done = _make(directory, "--kind", kind)
        assert done.returncode == 0, done.stderr
        assert f"{kind}, " in done.stdout
    return made


@pytest.mark.e2e
def test_every_kind_has_the_same_words_and_drafts_fit_their_targets(kinds: Mapping[str, Path]) -> None:
    configs = {kind: _config(directory) for kind, directory in kinds.items()}
    assert {kind: config["architectures"] for kind, config in configs.items()} == {
        "qwen35moe": ["Qwen3_5MoeForCausalLM"],
        "qwen35moe-ct4-g64": ["Qwen3_5MoeForCausalLM"],
        "dflash": ["DFlashDraftModel"],
    }
    assert {config["vocab_size"] for config in configs.values()} == {4096}
    assert len({(directory / "tokenizer.json").read_bytes() for directory in kinds.values()}) == 1
    assert configs["dflash"]["hidden_size"] == configs["qwen35moe"]["hidden_size"] == 512
    assert configs["qwen35moe"]["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]


@pytest.mark.e2e
def test_int4_weights_are_the_ones_they_were_rounded_from(kinds: Mapping[str, Path]) -> None:
    import torch
    from safetensors.torch import load_file

    whole = load_file(kinds["qwen35moe"] / "model.safetensors")
    rounded = load_file(kinds["qwen35moe-ct4-g64"] / "model.safetensors")
    for part in ("gate_proj", "up_proj", "down_proj"):
        name = f"model.layers.0.mlp.experts.3.{part}"
        weight = whole[f"{name}.weight"].float()
        packed = rounded[f"{name}.weight_packed"].to(torch.int64)
        scale = rounded[f"{name}.weight_scale"].float().repeat_interleave(64, dim=1)
        numbers = torch.stack([(packed >> (4 * i)) & 15 for i in range(8)], dim=-1).flatten(1) - 8
        assert rounded[f"{name}.weight_shape"].tolist() == list(weight.shape)
        assert ((numbers * scale - weight).abs() <= 0.51 * scale + 0.01 * weight.abs()).all()
    linear = [key for key in whole if "linear_attn" in key or key.startswith("mtp.")]
    assert linear
    assert all(torch.equal(whole[key], rounded[key]) for key in linear)
