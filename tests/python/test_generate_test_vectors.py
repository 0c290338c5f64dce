"""Reference vectors: prompts, positions, the files written, and that snapshot and artifact lead to the same numbers."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_snapshots import REPOSITORY

from tools import generate_test_vectors, make_synthetic_checkpoint
from tools.artifact import artifact_metadata, tensor_info
from tools.bf16 import widen
from tools.checkpoints import VOCAB_SIZE, find_checkpoint
from tools.convert_to_gguf import convert
from tools.errors import ToolError
from tools.generate_test_vectors import parse_positions, write_bound
from tools.gguf_reader import GgufFile
from tools.gguf_writer import encode_header
from tools.model_tensors import model_tensors
from tools.reference_source import open_source
from tools.synthetic_snapshot import twin_source
from tools.weight_schemes import SCHEMES

VECTORS = REPOSITORY / "tests" / "vectors"
PROMPTS = [
    {"name": "short", "text": "Hi 世界"},
    {"name": "ids", "ids": [5, 151935, 0, 7], "logit_positions": "all"},
    {"name": "cut", "text": "one two three four five six seven", "num_tokens": 4, "logit_positions": "none"},
]


def write_prompts(path: Path, prompts: list[dict]) -> Path:
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    return path


@pytest.mark.parametrize(("spec", "positions"), [
    ("none", []), ("last", [9]), ("all", list(range(10))), ("1", [9]), ("2", [0, 9]), ("4", [0, 3, 6, 9]),
    (3, [0, 4, 9]), ("99", list(range(10)))])
def test_positions(spec: object, positions: list[int]) -> None:
    assert parse_positions(spec, 10, "here") == positions


@pytest.mark.parametrize("spec", ["0", "-1", "first", "", None, True, "1.5"])
def test_bad_positions(spec: object) -> None:
    with pytest.raises(ToolError, match="here: logit positions"):
        parse_positions(spec, 10, "here")


def test_without_torch_the_tool_says_what_it_needs(originals: dict[str, Path], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ToolError, match=r"requirements/reference\.txt"):
        generate_test_vectors.main(["--model", str(originals["tiny"]), "--output", str(tmp_path)])


@pytest.mark.torch
def test_prompts_alone_need_no_torch(originals: dict[str, Path], tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    prompts = write_prompts(tmp_path / "prompts.jsonl", PROMPTS)
    common = ["--model", str(originals["tiny"]), "--checkpoint", "tiny", "--prompts", str(prompts),
              "--output", str(tmp_path / "alone"), "--prompts-only"]
    assert generate_test_vectors.main(common) == 0
    manifest = json.loads((tmp_path / "alone" / "manifest.json").read_text())
    assert manifest["reference"] is None
    assert [entry["name"] for entry in manifest["prompts"]] == ["short", "ids", "cut"]
    for entry in manifest["prompts"]:
        data = (tmp_path / "alone" / entry["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        tensors = load_file(tmp_path / "alone" / entry["file"])
        assert set(tensors) == {"ids"}
        assert len(tensors["ids"]) == entry["num_tokens"]
    with pytest.raises(ToolError, match="--prompts-only leaves no reference"):
        generate_test_vectors.main([*common, "--bf16-vectors", str(tmp_path)])


def test_rope_vectors_follow_the_formula() -> None:
    """The committed reference values, against double precision; frequencies bit for bit."""
    vectors = load_file(VECTORS / "rope.safetensors")
    positions = vectors["positions"]
    assert positions.tolist() == [0, 1, 31, 32, 1000, 40959, 262143]
    for theta in (1e6, 5e6):
        inv_freq = vectors[f"theta_{theta:.0f}.inv_freq"]
        expected = [np.float32(1) / np.float32(math.pow(theta, 2 * i / 128)) for i in range(64)]
        assert inv_freq.tolist() == [float(value) for value in expected]
        angles = (positions[:, None].astype(np.float32) * inv_freq[None]).astype(np.float64)  # one float32 product
        assert np.abs(vectors[f"theta_{theta:.0f}.cos"] - np.cos(angles)).max() < 2.0**-24
        assert np.abs(vectors[f"theta_{theta:.0f}.sin"] - np.sin(angles)).max() < 2.0**-24


def committed() -> list[Path]:
    return sorted(path.parent for path in VECTORS.glob("*/manifest.json"))


def test_committed_vectors_are_whole() -> None:
    assert committed()
    total = sum(path.stat().st_size for path in VECTORS.rglob("*") if path.is_file())
    assert total < 10_000_000
    for folder in committed():
        manifest = json.loads((folder / "manifest.json").read_bytes())
        lengths = [prompt["num_tokens"] for prompt in manifest["prompts"]]
        if manifest["quant_scheme"] == "bf16":
            assert max(lengths) >= 200
            assert {31, 32, 33, 65} <= set(lengths)
        else:  # into a second and a third block
            assert {1, 33, 65} <= set(lengths)
            assert manifest["loss_against_bf16"]["positions"] == sum(lengths)
        listed = {prompt["file"] for prompt in manifest["prompts"]}
        assert listed == {path.name for path in folder.glob("*.safetensors")}
        for prompt in manifest["prompts"]:
            path = folder / prompt["file"]
            assert hashlib.sha256(path.read_bytes()).hexdigest() == prompt["sha256"]
            vectors = load_file(path)
            assert vectors["final_hidden"].shape[0] == vectors["ids"].size == prompt["num_tokens"]
            assert vectors["logits"].shape == (vectors["logit_positions"].size, VOCAB_SIZE)
            assert vectors["taps"].shape[1:] == (vectors["tap_positions"].size, vectors["final_hidden"].shape[1])
            assert all(np.isfinite(vectors[name]).all() for name in ("final_hidden", "logits", "taps"))


@pytest.mark.parametrize(("folder", "scheme_name"), [
    ("qwen3-0.6b-2layers", "bf16"), ("qwen3-0.6b-2layers-q8_0", "q8_0"),
    ("qwen3-0.6b-2layers-affine4_gs32", "affine4_gs32")])
def test_the_committed_twins_are_those_that_the_generator_makes(folder: str, scheme_name: str) -> None:
    """The header's hash ties vectors, recipe, tokenizer and metadata together."""
    manifest = json.loads((VECTORS / folder / "manifest.json").read_bytes())
    checkpoint, scheme = find_checkpoint("qwen3-0.6b"), SCHEMES[scheme_name]
    infos = [tensor_info(tensor, scheme) for tensor in model_tensors(checkpoint, 2)]
    header = encode_header(artifact_metadata(twin_source(checkpoint, 2, seed=1), scheme), infos)
    assert hashlib.sha256(header).hexdigest() == manifest["header_sha256"]


@pytest.fixture(scope="module")
def generated(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Vectors of the same model by way of its snapshot and of its artifact."""
    root = tmp_path_factory.mktemp("vectors")
    prompts = write_prompts(root / "prompts.jsonl", PROMPTS)
    artifact = convert("tiny-base", originals["tiny-base"], root / "a.gguf", SCHEMES["bf16"])
    for name, model in (("snapshot", originals["tiny-base"]), ("artifact", artifact)):
        arguments = ["--model", str(model), "--checkpoint", "tiny-base", "--prompts", str(prompts), "--output",
                     str(root / name)]
        assert generate_test_vectors.main(arguments) == 0
    return {"snapshot": root / "snapshot", "artifact": root / "artifact", "model": artifact}


@pytest.mark.torch
def test_snapshot_and_artifact_agree_bit_for_bit(generated: dict[str, Path]) -> None:
    """Transformers' own loading against the artifact: names, shapes and order of the conversion are right."""
    for prompt in PROMPTS:
        name = f"{prompt['name']}.safetensors"
        assert (generated["snapshot"] / name).read_bytes() == (generated["artifact"] / name).read_bytes()


@pytest.mark.torch
def test_manifest_and_tensors(generated: dict[str, Path]) -> None:
    manifest = json.loads((generated["artifact"] / "manifest.json").read_bytes())
    with GgufFile(generated["model"]) as file:
        assert manifest["header_sha256"] == file.header_sha256
        head = widen(np.frombuffer(file.read("output.weight", 0, VOCAB_SIZE * 64), "<u2")).reshape(VOCAB_SIZE, 32)
    assert json.loads((generated["snapshot"] / "manifest.json").read_bytes())["header_sha256"] is None
    assert [prompt["num_tokens"] for prompt in manifest["prompts"]] == [3, 4, 4]
    assert [prompt["text"] for prompt in manifest["prompts"]] == ["Hi 世界", None, "one two three four"]
    assert manifest["reference"]["dtype"] == "float32"
    assert manifest["nmse_max"] is None
    assert not (generated["artifact"] / "nmse-max.txt").exists()
    vectors = load_file(generated["artifact"] / "ids.safetensors")
    assert vectors["ids"].tolist() == [5, 151935, 0, 7]
    assert vectors["taps"].shape == (3, 3, 32)
    recomputed = vectors["final_hidden"].astype(np.float64) @ head.astype(np.float64).T
    error = ((recomputed - vectors["logits"]) ** 2).sum() / (recomputed**2).sum()
    assert vectors["logits"].shape == (4, VOCAB_SIZE)
    assert error < 1e-12
    assert vectors["greedy"][0] == recomputed[-1, :151669].argmax()


@pytest.mark.torch
def test_what_rounding_k_and_v_costs_the_reference(generated: dict[str, Path]) -> None:
    """Rounded by hand inside attention itself, on the way from RoPE and V's product: the same hidden states."""
    from transformers.models.qwen3 import modeling_qwen3

    from tools.reference_model import final_hidden_with_rounded_kv, load_reference, torch

    model = load_reference(open_source(generated["model"], None), "cpu", torch.float32)
    eager, ids = modeling_qwen3.eager_attention_forward, [5, 151935, 0, 7]

    def rounding(module: object, query: object, key: torch.Tensor, value: torch.Tensor, *rest: object,
                 **named: object) -> object:
        return eager(module, query, key.bfloat16().float(), value.bfloat16().float(), *rest, **named)

    found = final_hidden_with_rounded_kv(model, ids)
    exact = load_file(generated["artifact"] / "ids.safetensors")["final_hidden"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_qwen3, "eager_attention_forward", rounding)
        with torch.no_grad():
            expected = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, exact)
    manifest = json.loads((generated["artifact"] / "manifest.json").read_bytes())
    entry = next(each["kv_rounding"] for each in manifest["prompts"] if each["name"] == "ids")
    with GgufFile(generated["model"]) as file:
        head = widen(np.frombuffer(file.read("output.weight", 0, VOCAB_SIZE * 64), "<u2")).reshape(VOCAB_SIZE, 32)
    a, b = (hidden.astype(np.float64) @ head.astype(np.float64).T for hidden in (found, exact))
    assert entry["nmse"] == pytest.approx(np.sum((a - b) ** 2) / np.sum(b**2), rel=1e-3)
    assert manifest["kv_rounding"]["worst_prompt_nmse"] == max(
        each["kv_rounding"]["nmse"] for each in manifest["prompts"])


@pytest.mark.torch
def test_greedy_ids_by_cache_equal_recomputation(generated: dict[str, Path], tmp_path: Path) -> None:
    """The greedy path comes from cached steps; whole recomputations must choose the same."""
    ids = [13048, 220, 99489]
    greedy = load_file(generated["artifact"] / "short.safetensors")["greedy"].tolist()
    prompts = [{"name": f"p{n}", "ids": ids + greedy[:n]} for n in range(1, 8)]
    path = write_prompts(tmp_path / "prompts.jsonl", prompts)
    arguments = ["--model", str(generated["model"]), "--prompts", str(path), "--output", str(tmp_path / "v")]
    assert generate_test_vectors.main(arguments) == 0
    for n in range(1, 8):
        logits = load_file(tmp_path / "v" / f"p{n}.safetensors")["logits"][-1]
        assert logits[:151669].argmax() == greedy[n]


@pytest.mark.torch
def test_a_bf16_reference_brings_its_own_bound(generated: dict[str, Path], tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", PROMPTS[:1])
    arguments = ["--model", str(generated["model"]), "--prompts", str(prompts), "--output", str(tmp_path / "v"),
                 "--dtype", "bfloat16", "--logit-positions", "2", "--max-tokens", "2"]
    assert generate_test_vectors.main(arguments) == 0
    assert float((tmp_path / "v" / "nmse-max.txt").read_text()) == 2e-3
    assert json.loads((tmp_path / "v" / "manifest.json").read_bytes())["nmse_max"] == 2e-3
    vectors = load_file(tmp_path / "v" / "short.safetensors")
    assert vectors["ids"].tolist() == [13048, 220]
    assert vectors["logit_positions"].tolist() == [0, 1]
    exact = load_file(generated["artifact"] / "short.safetensors")["final_hidden"][:2]
    assert json.loads((tmp_path / "v" / "manifest.json").read_bytes())["kv_rounding"] is None
    assert 1e-9 < ((vectors["final_hidden"] - exact) ** 2).sum() / (exact**2).sum() < 1e-3
    assert generate_test_vectors.main([*arguments, "--dtype", "float32"]) == 0  # into the same folder
    assert not (tmp_path / "v" / "nmse-max.txt").exists()
    assert json.loads((tmp_path / "v" / "manifest.json").read_bytes())["nmse_max"] is None


@pytest.mark.torch
@pytest.mark.parametrize("scheme", ["q8_0", "affine4_gs32"])
def test_a_quantised_reference_holds_the_stored_numbers_and_says_what_they_cost(
        scheme: str, generated: dict[str, Path], originals: dict[str, Path], tmp_path: Path) -> None:
    from tools.reference_model import load_reference, torch

    artifact = convert("tiny-base", originals["tiny-base"], tmp_path / "a.gguf", SCHEMES[scheme])
    model = load_reference(open_source(artifact, None), "cpu", torch.float32)
    with GgufFile(artifact) as file:
        data = np.frombuffer(file.read("blk.1.ffn_down.weight", 0, SCHEMES[scheme].projection.num_bytes(32 * 64)),
                             np.uint8)
    weight = model.model.layers[1].mlp.down_proj.weight.detach().numpy()
    assert np.array_equal(weight.reshape(-1), SCHEMES[scheme].projection.decode(data))

    prompts = write_prompts(tmp_path / "prompts.jsonl", PROMPTS)
    arguments = ["--model", str(artifact), "--prompts", str(prompts), "--output", str(tmp_path / "v")]
    with pytest.raises(ToolError, match="--bf16-vectors is for quantised artifacts, which need it"):
        generate_test_vectors.main(arguments)
    assert generate_test_vectors.main([*arguments, "--bf16-vectors", str(generated["artifact"])]) == 0
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_bytes())
    assert (manifest["quant_scheme"], manifest["nmse_max"]) == (scheme, None)
    loss = manifest["loss_against_bf16"]
    exact = load_file(generated["artifact"] / "ids.safetensors")["logits"].astype(np.float64)
    found = load_file(tmp_path / "v" / "ids.safetensors")["logits"].astype(np.float64)
    entry = next(each["loss_against_bf16"] for each in manifest["prompts"] if each["name"] == "ids")
    assert entry["nmse"] == pytest.approx(np.sum((found - exact) ** 2) / np.sum(exact**2), rel=1e-4)
    assert entry["argmax_equal"] == np.sum(found.argmax(axis=1) == exact.argmax(axis=1))
    assert (loss["positions"], entry["positions"]) == (11, 4)
    assert (1e-6 < loss["nmse"] < 1e-2) if scheme == "q8_0" else (1e-3 < loss["nmse"] < 1)
    assert loss["worst_nmse"] >= loss["nmse"]


@pytest.mark.torch
def test_the_bf16_vectors_must_be_those_of_the_same_weights(generated: dict[str, Path], originals: dict[str, Path],
                                                            tmp_path: Path) -> None:
    artifact = convert("tiny", originals["tiny"], tmp_path / "a.gguf", SCHEMES["q8_0"])
    prompts = write_prompts(tmp_path / "prompts.jsonl", PROMPTS)
    arguments = ["--model", str(artifact), "--prompts", str(prompts), "--output", str(tmp_path / "v")]
    with pytest.raises(ToolError, match="checkpoint_id: expected tiny, found tiny-base"):
        generate_test_vectors.main([*arguments, "--bf16-vectors", str(generated["artifact"])])
    with pytest.raises(ToolError, match="--bf16-vectors is for quantised"):
        generate_test_vectors.main(["--model", str(generated["model"]), "--prompts", str(prompts), "--output",
                                    str(tmp_path / "v"), "--bf16-vectors", str(generated["artifact"])])


def test_only_a_bf16_reference_leaves_a_bound(tmp_path: Path) -> None:
    """One that an earlier run left would loosen Phase 1 from 5e-5 to 2e-3."""
    path = tmp_path / "nmse-max.txt"
    assert write_bound(tmp_path, "float32") is None and not path.exists()
    assert write_bound(tmp_path, "bfloat16") == 2e-3
    assert path.read_text() == "0.002\n"
    assert write_bound(tmp_path, "float32") is None and not path.exists()


@pytest.mark.torch
@pytest.mark.parametrize(("prompt", "words"), [
    ({"name": "x"}, "one of text, ids, messages"), ({"name": "x", "text": "a", "ids": [1]}, "one of text"),
    ({"name": "X y", "text": "a"}, "name: expected"), ({"name": "../x", "text": "a"}, "name: expected"),
    ({"name": "x", "ids": []}, "ids: expected"), ({"name": "x", "ids": [151936]}, "ids: expected"),
    ({"name": "x", "ids": [True]}, "ids: expected"), ({"name": "x", "text": ""}, "ids: expected"),
    ({"name": "x", "ids": [1] * 2049}, "tokens: expected at most 2048, found 2049"),
    ({"name": "x", "ids": [1], "num_tokens": 2}, "num_tokens: expected 1 to 1"),
    ({"name": "x", "ids": [1], "colour": 2}, "fields"),
    ({"name": "x", "messages": [{"role": "user", "content": "hi"}]}, "has no chat template"),
])
def test_bad_prompts(prompt: dict, words: str, generated: dict[str, Path], tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", [prompt])
    with pytest.raises(ToolError) as caught:
        generate_test_vectors.main(["--model", str(generated["model"]), "--prompts", str(prompts), "--output",
                                    str(tmp_path / "v")])
    assert words in str(caught.value)
    assert "prompts.jsonl:1" in str(caught.value)


@pytest.mark.torch
def test_messages_use_the_artifacts_template(originals: dict[str, Path], tmp_path: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    (tmp_path / "snap").mkdir()
    for path in originals["tiny"].iterdir():
        (tmp_path / "snap" / path.name).hardlink_to(path)
    (tmp_path / "snap" / "chat_template.jinja").write_text(template)
    artifact = convert("tiny", tmp_path / "snap", tmp_path / "a.gguf", SCHEMES["bf16"])
    prompts = write_prompts(tmp_path / "p.jsonl", [{"name": "chat", "messages": [{"role": "user", "content": "Hi"}]}])
    arguments = ["--model", str(artifact), "--prompts", str(prompts), "--output", str(tmp_path / "v")]
    assert generate_test_vectors.main(arguments) == 0
    ids = load_file(tmp_path / "v" / "chat.safetensors")["ids"].tolist()
    assert ids == [151644, 872, 198, 13048, 151645, 198]


def test_a_snapshot_needs_its_name(originals: dict[str, Path]) -> None:
    with pytest.raises(ToolError, match="name one with --checkpoint"):
        open_source(originals["tiny"], None)
    source = open_source(originals["tiny-synthetic"], None)  # the marker says which
    assert (source.checkpoint.id, source.repository) == ("tiny", "synthetic/tiny")


def test_a_twins_identity_is_read_from_the_artifact(tmp_path: Path) -> None:
    arguments = ["--like", "tiny-base", "--seed", "3", "--layers", "1", "--artifact", str(tmp_path)]
    assert make_synthetic_checkpoint.main(arguments) == 0
    source = open_source(tmp_path / "kipp-tiny-base-1layers-bf16.gguf", None)
    assert source.num_layers == 1
    assert (source.repository, source.revision) == ("synthetic/tiny-base-1layers", "recipe1-seed3")
    assert source.quant_scheme == "bf16"
    assert len(json.loads(source.tokenizer_json)["added_tokens"]) == 22
