"""What is read of a model: local directories, the Hugging Face cache, and what is neither."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.machine import Model
from autotune.errors import FileError, UserError
from autotune.host.model import read_model

_CONFIG = {
    "architectures": ["LlamaForCausalLM", "Other"],
    "max_position_embeddings": 8192,
    "model_max_length": 10**30,
    "quantization_config": {"quant_method": "awq", "bits": 4},
    "time_step_limit": [0.0, float("inf")],
}


def _model(directory: Path, config: object = _CONFIG) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return directory


def _weights(directory: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (directory / name).write_bytes(b"x" * size)


def test_a_local_model(tmp_path: Path) -> None:
    directory = _model(tmp_path / "m")
    _weights(directory, **{"model-1.safetensors": 10, "model-2.safetensors": 20, "pytorch_model.bin": 40})
    assert read_model(str(directory)) == Model(
        name=str(directory),
        architecture="LlamaForCausalLM",
        max_model_len=8192,
        quantization="awq",
        has_mtp=False,
        weight_bytes=30,
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (None, None, False)),
        ({"max_position_embeddings": None, "num_nextn_predict_layers": None}, (None, None, False)),
        (
            {"text_config": {"max_position_embeddings": 262144, "mtp_num_hidden_layers": 1}},
            (None, 262144, True),
        ),
        ({"num_nextn_predict_layers": 1, "max_position_embeddings": 4096}, (None, 4096, True)),
        ({"mtp_num_hidden_layers": 0, "architectures": []}, (None, None, False)),
    ],
)
def test_facts_that_only_some_models_have(
    tmp_path: Path, config: object, expected: tuple[str | None, int | None, bool]
) -> None:
    model = read_model(str(_model(tmp_path / "m", config)))
    assert (model.architecture, model.max_model_len, model.has_mtp) == expected


def test_only_the_weights_in_the_index_count(tmp_path: Path) -> None:
    directory = _model(tmp_path / "m")
    _weights(
        directory, **{"model-1.safetensors": 10, "model-2.safetensors": 20, "consolidated.safetensors": 30}
    )
    index = {
        "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model(str(directory)).weight_bytes == 30
    (directory / "model-2.safetensors").unlink()
    assert read_model(str(directory)).weight_bytes is None


def test_bin_files_count_where_there_are_no_safetensors(tmp_path: Path) -> None:
    directory = _model(tmp_path / "m")
    assert read_model(str(directory)).weight_bytes is None
    _weights(directory, **{"pytorch_model.bin": 40, "training_args.bin": 5})
    assert read_model(str(directory)).weight_bytes == 40


@pytest.mark.parametrize("cache_variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_a_hub_model_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_variable: str
) -> None:
    below = {"HF_HUB_CACHE": "", "HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub"}
    for name in below:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(cache_variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    repository = tmp_path / below[cache_variable] / "models--org--name.v1"
    assert read_model("org/name.v1") == Model(name="org/name.v1")

    current = _model(repository / "snapshots/abc", {"max_position_embeddings": 1})
    newer = _model(repository / "snapshots/def", {"max_position_embeddings": 2})
    os.utime(current, (1, 1))
    os.utime(newer, (2, 2))
    assert read_model("org/name.v1").max_model_len == 2
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("abc")
    assert read_model("org/name.v1").max_model_len == 1

    _weights(repository, blob=30)
    (current / "model.safetensors").symlink_to(repository / "blob")
    model = read_model("org/name.v1")
    assert (model.name, model.weight_bytes) == ("org/name.v1", 30)
    (repository / "blob").unlink()
    assert read_model("org/name.v1").weight_bytes is None


def test_a_tilde_is_expanded_before_vllm_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _model(tmp_path / "m")
    assert read_model("~/m").name == str(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/nowhere/m", "model /nowhere/m is not here: give a directory"),
        ("./m", "is not here"),
        ("../m", "is not here"),
        ("~/m", "is not here"),
        ("~nobody-of-that-name/m", "is not here"),
        ("a/b/c", "is not here"),
        ("gpt2", "or the `org/name` of a model on the Hugging Face Hub"),
        ("", "the model's name is empty"),
        ("here/m", "the directory here/ has no m in it; if you mean the Hub's here/m"),
        ("here", "here has no config.json"),
        ("file.gguf", "model file.gguf is a file"),
    ],
)
def test_what_is_no_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "file.gguf").touch()
    with pytest.raises(UserError) as caught:
        read_model(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "line 1 column 2"),
        ("[]", "Expected `object`, got `array`"),
        ('{"max_position_embeddings": "8k"}', "$.max_position_embeddings"),
        ('{"max_position_embeddings": -1}', "$.max_position_embeddings"),
        ('{"architectures": "LlamaForCausalLM"}', "$.architectures"),
        ('{"text_config": {"mtp_num_hidden_layers": true}}', "$.text_config.mtp_num_hidden_layers"),
        ('{"quantization_config": {"quant_method": 4}}', "$.quantization_config.quant_method"),
        ("[" * 100_000, "config.json"),
    ],
)
def test_an_odd_config_is_refused_by_name(tmp_path: Path, config: str, said: str) -> None:
    directory = _model(tmp_path / "m", config)
    with pytest.raises(FileError) as caught:
        read_model(str(directory))
    assert caught.value.path == str(directory / "config.json")
    assert said in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*_CONFIG, "text_config"]), inner)
    ),
    max_leaves=10,
)


@given(config=_JSON)
def test_any_config_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, config: object) -> None:
    directory = _model(tmp_path_factory.mktemp("m"), json.dumps(config))
    try:
        model = read_model(str(directory))
    except FileError:
        return
    assert model.max_model_len is None or model.max_model_len > 0
