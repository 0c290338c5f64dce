"""A downloaded, trained or synthetic snapshot, checked to be what the registry says before anything is written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tools.artifact import PIECE_BYTES, ArtifactSource, SamplingDefaults, synthetic_repository
from tools.bf16 import first_non_finite
from tools.checkpoints import HEAD_DIM, NUM_KV_HEADS, RMS_NORM_EPSILON, VOCAB_SIZE, Checkpoint
from tools.errors import ToolError, mismatch
from tools.model_tensors import EMBEDDING_NAME, HEAD_NAME, ModelTensor, model_tensors, row_pieces
from tools.safetensors_reader import INDEX_NAME, SnapshotWeights
from tools.source_pins import check_demo_files, check_downloaded_files
from tools.strict_json import parse_json_object
from tools.synthetic_recipe import MASK64, RECIPE
from tools.synthetic_snapshot import MARKER_NAME, twin_revision
from tools.tokenizer_metadata import TokenizerMetadata, parse_tokenizer


@dataclasses.dataclass(frozen=True)
class SyntheticMarker:
    """What kipp_synthetic.json says: this snapshot's weights were drawn, not trained."""

    seed: int
    num_layers: int


def read_marker(folder: Path, checkpoint: Checkpoint) -> SyntheticMarker | None:
    path = folder / MARKER_NAME
    if not path.exists():
        return None
    document = parse_json_object(path.read_bytes(), path)
    if document.get("id") != checkpoint.id:
        raise mismatch(path, "id", checkpoint.id, document.get("id"))
    if document.get("recipe") != RECIPE:
        raise mismatch(path, "recipe", RECIPE, document.get("recipe"))
    seed, layers = document.get("seed"), document.get("layers")
    if type(seed) is not int or not 0 <= seed <= MASK64:
        raise mismatch(path, "seed", "0 to 2^64-1", seed)
    if type(layers) is not int or not 1 <= layers <= checkpoint.num_layers:
        raise mismatch(path, "layers", f"1 to {checkpoint.num_layers}", layers)
    return SyntheticMarker(seed, layers)


def read_config(folder: Path) -> dict:
    path = folder / "config.json"
    if not path.exists():
        raise ToolError(f"{path}: missing; {folder} is not a snapshot of a checkpoint")
    return parse_json_object(path.read_bytes(), path)


def check_config(config: dict, path: Path, checkpoint: Checkpoint, num_layers: int) -> None:
    """Every field that shapes the computation, against the registry; the first difference is the error."""
    expected = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": checkpoint.hidden,
        "num_hidden_layers": num_layers,
        "num_attention_heads": checkpoint.num_query_heads,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": checkpoint.ffn,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": checkpoint.context,
        "rms_norm_eps": RMS_NORM_EPSILON,
        "tie_word_embeddings": checkpoint.tied_head,
        "attention_bias": False,
        "hidden_act": "silu",
        "eos_token_id": checkpoint.eos_token,
    }
    for field, value in expected.items():
        _require(config, field, value, path)
    _check_rope(config, path, checkpoint)
    if config.get("use_sliding_window", False) is not False:
        raise mismatch(path, "use_sliding_window", "false", json.dumps(config["use_sliding_window"]))
    if any(kind != "full_attention" for kind in config.get("layer_types") or []):
        raise mismatch(path, "layer_types", "full_attention only", json.dumps(config["layer_types"]))
    for field in ("torch_dtype", "dtype"):
        if config.get(field, "bfloat16") != "bfloat16":
            raise mismatch(path, field, "bfloat16", config[field])
    if "quantization_config" in config:
        raise mismatch(path, "quantization_config", "none: the BF16 checkpoint", "one")


def _require(config: dict, field: str, expected: object, path: Path) -> None:
    found = config.get(field)
    same_kind = isinstance(found, bool) == isinstance(expected, bool)  # in Python True == 1
    if field not in config or found != expected or not same_kind:
        raise mismatch(path, field, json.dumps(expected), json.dumps(found) if field in config else "nothing")


def _check_rope(config: dict, path: Path, checkpoint: Checkpoint) -> None:
    """rope_theta stands alone up to Transformers 4 and in rope_parameters from 5 on; scaling must be off in both."""
    parameters = config.get("rope_parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise mismatch(path, "rope_parameters", "an object", json.dumps(parameters))
        extra = set(parameters) - {"rope_theta", "rope_type"}
        if parameters.get("rope_type", "default") != "default" or extra:
            raise mismatch(path, "rope_parameters", "type default, no scaling", json.dumps(parameters))
    if config.get("rope_scaling") is not None:
        raise mismatch(path, "rope_scaling", "null", json.dumps(config["rope_scaling"]))
    thetas = [holder["rope_theta"] for holder in (config, parameters or {}) if "rope_theta" in holder]
    if not thetas or any(theta != checkpoint.rope_theta for theta in thetas):
        raise mismatch(path, "rope_theta", checkpoint.rope_theta, thetas[0] if thetas else "nothing")


# Sampling settings that an artifact cannot record, with the value that changes nothing.
_NEUTRAL_SAMPLING = {"repetition_penalty": 1.0, "min_p": 0.0, "typical_p": 1.0, "no_repeat_ngram_size": 0,
                     "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None}


def read_generation_config(folder: Path, checkpoint: Checkpoint) -> SamplingDefaults:
    """The checkpoint's default sampling; its stop tokens must be the registry's."""
    path = folder / "generation_config.json"
    if not path.exists():
        raise ToolError(f"{path}: missing; every pinned revision ships one")
    document = parse_json_object(path.read_bytes(), path)
    stop = document.get("eos_token_id")
    found = stop if isinstance(stop, list) else [stop]
    if any(type(token) is not int for token in found) or sorted(found) != sorted(checkpoint.stop_tokens):
        raise mismatch(path, "eos_token_id", list(checkpoint.stop_tokens), stop)
    for field, neutral in _NEUTRAL_SAMPLING.items():
        if document.get(field) is not None and document[field] != neutral:
            raise mismatch(path, field, f"{neutral}: an artifact does not record it", document[field])
    if document.get("do_sample") is False:
        return SamplingDefaults()
    return SamplingDefaults(
        temperature=_sampling_float(document, "temperature", path, upper=math.inf),
        top_k=_sampling_count(document, "top_k", path),
        top_p=_sampling_float(document, "top_p", path, upper=1.0),
    )


def _sampling_float(document: dict, field: str, path: Path, upper: float) -> float | None:
    value = document.get(field)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 < value <= upper:
        raise mismatch(path, field, f"a number above 0 and at most {upper:g}", value)
    return float(value)


def _sampling_count(document: dict, field: str, path: Path) -> int | None:
    value = document.get(field)
    if value is not None and (type(value) is not int or not 0 <= value < 1 << 32):
        raise mismatch(path, field, "a count", value)
    return value


def read_chat_template(folder: Path) -> str | None:
    """chat_template.jinja takes precedence over tokenizer_config.json's field, as in Transformers."""
    jinja = folder / "chat_template.jinja"
    config_path = folder / "tokenizer_config.json"
    if jinja.exists():
        try:
            return jinja.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolError(f"{jinja}: not UTF-8: {error}") from error
    if not config_path.exists():
        raise ToolError(f"{config_path}: missing")
    template = parse_json_object(config_path.read_bytes(), config_path).get("chat_template")
    if template is not None and not isinstance(template, str):
        raise mismatch(config_path, "chat_template", "one template", type(template).__name__)
    return template


def read_tokenizer(folder: Path, checkpoint: Checkpoint) -> TokenizerMetadata:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ToolError(f"{path}: missing")
    tokenizer = parse_tokenizer(path.read_bytes(), path)
    if tokenizer.isolates_think_tokens != checkpoint.isolates_think_tokens:
        declared = {True: "declared as added tokens", False: "not declared"}
        raise mismatch(path, "the four think/tool tokens", declared[checkpoint.isolates_think_tokens],
                       declared[tokenizer.isolates_think_tokens])
    return tokenizer


def check_tensors(weights: SnapshotWeights, checkpoint: Checkpoint, num_layers: int) -> list[ModelTensor]:
    """The set of tensors, their dtype and shape; returns them in the artifact's order.

    A tied checkpoint may ship lm_head.weight too, as some savers do: it is accepted only if it is byte for byte the
    embedding, because otherwise configuration and weights disagree about what the head is.
    """
    tensors = model_tensors(checkpoint, num_layers)
    expected = {tensor.hf_name: tensor.shape for tensor in tensors}
    has_copy = checkpoint.tied_head and HEAD_NAME in weights.location
    if has_copy:
        expected[HEAD_NAME] = expected[EMBEDDING_NAME]
    for name, shape in expected.items():
        if name not in weights.location:
            raise mismatch(weights.folder, f"tensor {name}", f"BF16 {list(shape)}", "no such tensor")
        entry = weights.entry(name)
        if entry.dtype != "BF16" or entry.shape != shape:
            raise mismatch(weights.location[name].path, f"tensor {name}", f"BF16 {list(shape)}",
                           f"{entry.dtype} {list(entry.shape)}")
    for name in weights.location:
        if name not in expected:
            raise mismatch(weights.location[name].path, f"tensor {name}", "no such tensor", "one")
    if has_copy:
        _require_equal_head(weights)
    return tensors


def _require_equal_head(weights: SnapshotWeights) -> None:
    total = weights.entry(EMBEDDING_NAME).num_bytes
    for offset in range(0, total, PIECE_BYTES):
        size = min(PIECE_BYTES, total - offset)
        if weights.read(EMBEDDING_NAME, offset, size) != weights.read(HEAD_NAME, offset, size):
            raise mismatch(weights.location[HEAD_NAME].path, f"tensor {HEAD_NAME}",
                           f"the bytes of {EMBEDDING_NAME}, since tie_word_embeddings is true", "others")


def tensor_pieces(weights: SnapshotWeights, tensor: ModelTensor) -> Iterator[np.ndarray]:
    """The tensor's bf16 bits in whole rows; NaN and infinity are errors that name the element."""
    for first_row, num_rows in row_pieces(tensor, PIECE_BYTES):
        row_bytes = 2 * tensor.columns
        data = weights.read(tensor.hf_name, first_row * row_bytes, num_rows * row_bytes)
        bits = np.frombuffer(data, dtype="<u2")
        index = first_non_finite(bits)
        if index >= 0:
            flat = first_row * tensor.columns + index
            raise mismatch(weights.location[tensor.hf_name].path, f"tensor {tensor.hf_name}, element {flat}",
                           "a finite number", f"bits 0x{bits[index]:04x}")
        yield bits


def hash_files(folder: Path, names: list[str]) -> dict[str, str]:
    """sha256 of each file, with progress: weights are long."""
    total = sum((folder / name).stat().st_size for name in names)
    digests = {}
    with tqdm(total=total, unit="B", unit_scale=True, desc="sha256", disable=None) as progress:
        for name in names:
            digest = hashlib.sha256()
            with open(folder / name, "rb", buffering=0) as file:
                while piece := file.read(PIECE_BYTES):
                    digest.update(piece)
                    progress.update(len(piece))
            digests[name] = digest.hexdigest()
    return digests


def source_file_names(folder: Path, weights: SnapshotWeights) -> list[str]:
    """Every file that the artifact was made from, in name order."""
    optional = [name for name in (MARKER_NAME, INDEX_NAME, "chat_template.jinja", "tokenizer_config.json")
                if (folder / name).exists()]
    return sorted({"config.json", "generation_config.json", "tokenizer.json", *optional, *weights.files})


def describe_source(folder: Path, weights: SnapshotWeights, checkpoint: Checkpoint,
                    marker: SyntheticMarker | None) -> ArtifactSource:
    """Everything but the weights' values; each part is checked on the way."""
    num_layers = marker.num_layers if marker else checkpoint.num_layers
    check_tensors(weights, checkpoint, num_layers)
    sampling = read_generation_config(folder, checkpoint)
    tokenizer = read_tokenizer(folder, checkpoint)
    template = read_chat_template(folder)
    if marker and template is not None:
        raise mismatch(folder, "chat template", "none in a synthetic snapshot", "one")
    digests = hash_files(folder, source_file_names(folder, weights))
    check_downloaded_files(checkpoint, digests, folder)
    if checkpoint.is_demo and not marker:
        check_demo_files(checkpoint, digests, folder)
    repository = synthetic_repository(checkpoint, num_layers) if marker else checkpoint.repository
    revision = twin_revision(marker.seed) if marker else checkpoint.revision
    return ArtifactSource(checkpoint, num_layers, repository, revision, sorted(digests.items()), tokenizer, template,
                          sampling)
