"""The converter: what it writes, and that it refuses every snapshot that is not exactly what the registry says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_snapshots import TINY, TINY_BASE, Snapshot

from tools import convert_to_gguf
from tools.convert_to_gguf import convert
from tools.errors import ToolError
from tools.gguf_reader import GgufFile
from tools.model_tensors import model_tensors
from tools.safetensors_reader import SafetensorsFile
from tools.weight_schemes import SCHEMES

BF16 = SCHEMES["bf16"]
SnapshotOf = Callable[[str], Snapshot]


def converted(folder: Path, checkpoint_id: str, output: Path, **options: object) -> GgufFile:
    return GgufFile(convert(checkpoint_id, folder, output, BF16, **options))


def test_keys_types_and_order_of_an_instruct_artifact(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("tokenizer_config.json", lambda config: config.update(chat_template="{{ messages }}"))
    copy.edit("generation_config.json", lambda config: config.update(do_sample=True, temperature=0.6, top_k=20,
                                                                     top_p=0.95))
    with converted(copy.folder, "tiny", tmp_path / "a.gguf") as file:
        found = {key: value for key, value in file.metadata.items()
                 if key not in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")}
    hashes = [f"{name}:{hashlib.sha256((copy.folder / name).read_bytes()).hexdigest()}" for name in (
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")]
    assert list(found.items()) == list({
        "general.architecture": "qwen3", "general.name": "tiny", "general.alignment": 128, "general.file_type": 32,
        "qwen3.block_count": 3, "qwen3.context_length": 4096, "qwen3.embedding_length": 32,
        "qwen3.feed_forward_length": 96, "qwen3.attention.head_count": 8, "qwen3.attention.head_count_kv": 8,
        "qwen3.attention.key_length": 128, "qwen3.attention.value_length": 128, "qwen3.vocab_size": 151936,
        "qwen3.rope.freq_base": 1e6, "qwen3.attention.layer_norm_rms_epsilon": pytest.approx(1e-6, rel=1e-7),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.eos_token_id": 151645,
        "tokenizer.ggml.padding_token_id": 151643, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}", "kipp.format_version": 1, "kipp.checkpoint.id": "tiny",
        "kipp.source.repository": "test/tiny", "kipp.source.revision": "1" * 40, "kipp.quant.scheme": "bf16",
        "kipp.source.sha256": hashes, "kipp.stop_token_ids": [151645, 151643],
        "kipp.tokenizer.isolates_think_tokens": True,
        "kipp.sampling.temperature": pytest.approx(0.6, rel=1e-7), "kipp.sampling.top_k": 20,
        "kipp.sampling.top_p": pytest.approx(0.95, rel=1e-7),
    }.items())


def test_a_base_artifact(snapshot: SnapshotOf, tmp_path: Path) -> None:
    with converted(snapshot("tiny-base").folder, "tiny-base", tmp_path / "a.gguf") as file:
        assert file.metadata["kipp.stop_token_ids"] == [151643]
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 151643
        assert file.metadata["kipp.tokenizer.isolates_think_tokens"] is False
        assert file.metadata["qwen3.rope.freq_base"] == 5e6
        assert not [key for key in file.metadata if key.startswith("kipp.sampling")]
        assert list(file.tensors)[-2:] == ["output_norm.weight", "output.weight"]


@pytest.mark.parametrize("checkpoint", [TINY, TINY_BASE], ids=lambda checkpoint: checkpoint.id)
def test_every_tensor_arrives_unchanged(checkpoint, snapshot: SnapshotOf, tmp_path: Path) -> None:
    folder = snapshot(checkpoint.id).folder
    tensors = model_tensors(checkpoint, checkpoint.num_layers)
    with converted(folder, checkpoint.id, tmp_path / "a.gguf") as file, \
         SafetensorsFile(folder / "model.safetensors") as source:
        assert list(file.tensors) == [tensor.gguf_name for tensor in tensors]
        for tensor in tensors:
            entry = source.tensors[tensor.hf_name]
            assert file.tensors[tensor.gguf_name].ggml_type == 30
            assert file.tensors[tensor.gguf_name].dimensions == tuple(reversed(entry.shape))
            assert file.tensors[tensor.gguf_name].offset % 128 == 0
            assert file.read(tensor.gguf_name, 0, entry.num_bytes) == source.read(entry, 0, entry.num_bytes)


def test_sharded_and_single_give_the_same_weights(originals: dict[str, Path], tmp_path: Path) -> None:
    data = []
    for name in ("tiny", "tiny-sharded"):
        with converted(originals[name], "tiny", tmp_path / f"{name}.gguf") as file:
            data.append((file.path.read_bytes()[file.data_start:], file.tensors))
            names = [entry.split(":")[0] for entry in file.metadata["kipp.source.sha256"]]
    assert data[0] == data[1]
    assert "model.safetensors.index.json" in names
    assert "model-00001-of-00006.safetensors" in names


CONFIG_CHANGES = [
    ("architectures", ["Qwen3MoeForCausalLM"]), ("model_type", "qwen2"), ("hidden_size", 64),
    ("num_hidden_layers", 4), ("num_attention_heads", 16), ("num_key_value_heads", 4), ("head_dim", 64),
    ("intermediate_size", 97), ("vocab_size", 151669), ("max_position_embeddings", 40960), ("rms_norm_eps", 1e-5),
    ("tie_word_embeddings", False), ("tie_word_embeddings", 1), ("attention_bias", True), ("attention_bias", 0),
    ("hidden_act", "gelu"), ("eos_token_id", 151643), ("rope_theta", 10000.0),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}), ("use_sliding_window", True),
    ("layer_types", ["full_attention", "sliding_attention", "full_attention"]), ("torch_dtype", "float16"),
    ("dtype", "float32"), ("quantization_config", {"bits": 4}),
    ("rope_parameters", {"rope_theta": 1e6, "rope_type": "yarn"}),
    ("rope_parameters", {"rope_theta": 1e6, "rope_type": "default", "factor": 2.0}),
    ("rope_parameters", {"rope_theta": 5e6, "rope_type": "default"}), ("rope_parameters", [1]),
]


@pytest.mark.parametrize(("field", "value"), CONFIG_CHANGES)
def test_a_config_that_differs_is_refused_by_field(field: str, value: object, snapshot: SnapshotOf,
                                                   tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("config.json", lambda config: config.update({field: value}))
    with pytest.raises(ToolError, match=r"config\.json: ") as caught:
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)
    assert field.removesuffix("_parameters") in str(caught.value)
    assert "expected" in str(caught.value)
    assert not (tmp_path / "a.gguf").exists()


REQUIRED_FIELDS = ["architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                   "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings",
                   "rms_norm_eps", "tie_word_embeddings", "attention_bias", "hidden_act", "eos_token_id", "rope_theta"]


@pytest.mark.parametrize("field", REQUIRED_FIELDS)
def test_a_config_that_lacks_a_field_is_refused(field: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("config.json", lambda config: config.pop(field))
    with pytest.raises(ToolError, match=rf"config\.json: {field}: expected .*, found nothing"):
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)


def test_the_layout_of_transformers_5_is_accepted(snapshot: SnapshotOf, tmp_path: Path) -> None:
    def modernise(config: dict) -> None:
        config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
        config["dtype"] = config.pop("torch_dtype")
        config["layer_types"] = ["full_attention"] * 3
        del config["rope_scaling"]

    copy = snapshot("tiny")
    copy.edit("config.json", modernise)
    with converted(copy.folder, "tiny", tmp_path / "a.gguf") as file:
        assert file.metadata["qwen3.rope.freq_base"] == 1e6


GENERATION_CHANGES = [
    ({"eos_token_id": 151645}, "eos_token_id"), ({"eos_token_id": [151645, 151643, 7]}, "eos_token_id"),
    ({"eos_token_id": None}, "eos_token_id"), ({"eos_token_id": ["151645", "151643"]}, "eos_token_id"),
    ({"temperature": 0}, "temperature"), ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"), ({"temperature": -0.6}, "temperature"),
    ({"top_k": -1}, "top_k"), ({"top_k": 2.5}, "top_k"), ({"top_p": 1.5}, "top_p"), ({"top_p": 0.0}, "top_p"),
    ({"repetition_penalty": 1.05}, "repetition_penalty"), ({"min_p": 0.1}, "min_p"),
]


@pytest.mark.parametrize(("change", "field"), GENERATION_CHANGES)
def test_a_generation_config_that_cannot_be_recorded_is_refused(change: dict, field: str, snapshot: SnapshotOf,
                                                                tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("generation_config.json", lambda config: config.update(change))
    with pytest.raises(ToolError, match=rf"generation_config\.json: {field}: expected"):
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)


def test_sampling_switched_off_is_not_recorded(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("generation_config.json", lambda config: config.update(do_sample=False, temperature=0.6,
                                                                     repetition_penalty=1.0))
    with converted(copy.folder, "tiny", tmp_path / "a.gguf") as file:
        assert not [key for key in file.metadata if key.startswith("kipp.sampling")]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                  "model.safetensors"])
def test_a_missing_file_is_named(name: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.remove(name)
    with pytest.raises(ToolError, match=name.replace(".", r"\.")):
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)


def test_the_template_file_takes_precedence(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("tokenizer_config.json", lambda config: config.update(chat_template="old"))
    copy.replace("chat_template.jinja", "neu {{ größe }}".encode())
    with converted(copy.folder, "tiny", tmp_path / "a.gguf") as file:
        assert file.metadata["tokenizer.chat_template"] == "neu {{ größe }}"
        assert any(entry.startswith("chat_template.jinja:") for entry in file.metadata["kipp.source.sha256"])


def test_a_list_of_templates_is_refused(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    copy.edit("tokenizer_config.json", lambda config: config.update(chat_template=[{"name": "a", "template": "b"}]))
    with pytest.raises(ToolError, match="chat_template: expected one template, found list"):
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)


def test_added_tokens_decoder_does_not_count(snapshot: SnapshotOf, tmp_path: Path) -> None:
    """Base checkpoints list the four tokens there all the same."""
    copy = snapshot("tiny-base")
    decoder = {"151667": {"content": "<think>", "special": False}}
    copy.edit("tokenizer_config.json", lambda config: config.update(added_tokens_decoder=decoder))
    with converted(copy.folder, "tiny-base", tmp_path / "a.gguf") as file:
        assert file.metadata["tokenizer.ggml.tokens"][151667] == "[PAD151667]"


@pytest.mark.parametrize(("name", "other"), [("tiny", "tiny-base"), ("tiny-base", "tiny")])
def test_a_tokenizer_of_the_other_kind_is_refused(name: str, other: str, originals: dict[str, Path],
                                                  snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot(name)
    copy.replace("tokenizer.json", (originals[other] / "tokenizer.json").read_bytes())
    with pytest.raises(ToolError, match=r"tokenizer\.json: the four think/tool tokens: expected"):
        convert(name, copy.folder, tmp_path / "a.gguf", BF16)


@pytest.mark.parametrize(("name", "option", "isolates"), [
    ("tiny", "split", False), ("tiny", "isolate", True), ("tiny-base", "isolate", True), ("tiny-base", "split", False)])
def test_think_tokens_can_be_overridden(name: str, option: str, isolates: bool, originals: dict[str, Path],
                                        tmp_path: Path) -> None:
    with converted(originals[name], name, tmp_path / "a.gguf", think_tokens=option) as file:
        assert file.metadata["kipp.tokenizer.isolates_think_tokens"] is isolates
        assert file.metadata["tokenizer.ggml.tokens"][151667] == ("<think>" if isolates else "[PAD151667]")
        assert file.metadata["tokenizer.ggml.token_type"][151667] == (4 if isolates else 5)


def test_a_synthetic_snapshot_needs_the_flag(snapshot: SnapshotOf, tmp_path: Path) -> None:
    folder = snapshot("tiny-synthetic").folder
    with pytest.raises(ToolError, match="--allow-synthetic"):
        convert("tiny", folder, tmp_path / "a.gguf", BF16)
    with converted(folder, "tiny", tmp_path / "a.gguf", allow_synthetic=True) as file:
        assert file.metadata["kipp.source.repository"] == "synthetic/tiny"
        assert file.metadata["kipp.source.revision"] == "recipe1-seed11"


@pytest.mark.parametrize(("change", "words"), [
    ({"id": "tiny-base"}, "id: expected tiny, found tiny-base"), ({"recipe": 2}, "recipe: expected 1, found 2"),
    ({"seed": -1}, "seed"), ({"seed": "1"}, "seed"), ({"layers": 0}, "layers"), ({"layers": 4}, "layers"),
    ({"layers": 2}, "num_hidden_layers: expected 2, found 3")])
def test_a_marker_that_disagrees_is_refused(change: dict, words: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny-synthetic")
    copy.edit("kipp_synthetic.json", lambda marker: marker.update(change))
    with pytest.raises(ToolError) as caught:
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16, allow_synthetic=True)
    assert words in str(caught.value)


def test_a_synthetic_snapshot_with_a_template_is_refused(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny-synthetic")
    copy.replace("chat_template.jinja", b"x")
    with pytest.raises(ToolError, match="chat template: expected none"):
        convert("tiny", copy.folder, tmp_path / "a.gguf", BF16, allow_synthetic=True)


def test_wrong_checkpoint_names_and_folders(originals: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="unknown checkpoint 'qwen4'"):
        convert("qwen4", originals["tiny"], tmp_path / "a.gguf", BF16)
    with pytest.raises(ToolError, match="no such folder"):
        convert("tiny", tmp_path / "absent", tmp_path / "a.gguf", BF16)
    with pytest.raises(ToolError, match=r"config\.json"):
        convert("qwen3-0.6b", originals["tiny"], tmp_path / "a.gguf", BF16)


def test_the_command_line(originals: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--checkpoint", "tiny", "--source", str(originals["tiny"]), "--output", str(tmp_path)]
    assert convert_to_gguf.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(tmp_path / "kipp-tiny-bf16.gguf")
    assert captured.err == ""  # no progress bar where there is no terminal
    assert json.loads((originals["tiny"] / "config.json").read_bytes())["hidden_size"] == 32
