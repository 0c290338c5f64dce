"""The artifact's metadata and its writing: shared by the converter and the generator of synthetic twins.

The keys: docs/artifact.md. Their order is that of `artifact_metadata`; tensors follow in the order of the forward pass.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from tools.atomic_file import BUFFER_BYTES, AtomicFile
from tools.block_quantization import UnencodableBlockError
from tools.checkpoints import END_OF_TEXT, HEAD_DIM, NUM_KV_HEADS, RMS_NORM_EPSILON, VOCAB_SIZE, Checkpoint
from tools.errors import mismatch
from tools.gguf_writer import ALIGNMENT, GgufWriter, Metadata, TensorInfo, ValueType
from tools.model_tensors import ModelTensor, model_tensors
from tools.tokenizer_metadata import TokenizerMetadata
from tools.weight_schemes import Encoding, WeightScheme

if TYPE_CHECKING:
    from tools.bf16 import Array

FORMAT_VERSION = 1
SYNTHETIC_REPOSITORY = "synthetic/"

# Yields the bf16 of a tensor, whole rows in order: uint16 in numpy, or torch's bfloat16 on the device to encode on.
TensorSource = Callable[[ModelTensor], Iterator["Array"]]


@dataclasses.dataclass(frozen=True)
class SamplingDefaults:
    """From generation_config.json; None where it says nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None


@dataclasses.dataclass(frozen=True)
class ArtifactSource:
    """Everything about an artifact that is not weights."""

    checkpoint: Checkpoint
    num_layers: int
    repository: str
    revision: str
    file_sha256: Sequence[tuple[str, str]]  # (file name, hex digest)
    tokenizer: TokenizerMetadata
    chat_template: str | None
    sampling: SamplingDefaults


def artifact_file_name(checkpoint: Checkpoint, num_layers: int, scheme: WeightScheme) -> str:
    """kipp-<id>-<scheme>.gguf; a twin of reduced depth says so."""
    depth = "" if num_layers == checkpoint.num_layers else f"-{num_layers}layers"
    return f"kipp-{checkpoint.id}{depth}-{scheme.name}.gguf"


def synthetic_repository(checkpoint: Checkpoint, num_layers: int) -> str:
    depth = "" if num_layers == checkpoint.num_layers else f"-{num_layers}layers"
    return f"{SYNTHETIC_REPOSITORY}{checkpoint.id}{depth}"


def artifact_metadata(source: ArtifactSource, scheme: WeightScheme) -> list[Metadata]:
    """Every key of the artifact, in its fixed order."""
    model = model_keys(source.checkpoint, source.num_layers, scheme)
    return [*model, *_tokenizer_keys(source), *_kipp_keys(source, scheme)]


def _u32(key: str, value: int) -> Metadata:
    return Metadata(key, ValueType.U32, value)


def _f32(key: str, value: float) -> Metadata:
    return Metadata(key, ValueType.F32, float(value))


def _text(key: str, value: str) -> Metadata:
    return Metadata(key, ValueType.STRING, value)


def _flag(key: str, value: bool) -> Metadata:
    return Metadata(key, ValueType.BOOL, value)


def _array(key: str, element_type: ValueType, values: Sequence[object]) -> Metadata:
    return Metadata(key, ValueType.ARRAY, values, element_type)


def model_keys(checkpoint: Checkpoint, num_layers: int, scheme: WeightScheme) -> list[Metadata]:
    """The keys that say which model it is: what other programs compute with."""
    return [
        _text("general.architecture", "qwen3"),
        _text("general.name", checkpoint.id),
        _u32("general.alignment", ALIGNMENT),
        _u32("general.file_type", scheme.file_type),
        _u32("qwen3.block_count", num_layers),
        _u32("qwen3.context_length", checkpoint.context),
        _u32("qwen3.embedding_length", checkpoint.hidden),
        _u32("qwen3.feed_forward_length", checkpoint.ffn),
        _u32("qwen3.attention.head_count", checkpoint.num_query_heads),
        _u32("qwen3.attention.head_count_kv", NUM_KV_HEADS),
        _u32("qwen3.attention.key_length", HEAD_DIM),
        _u32("qwen3.attention.value_length", HEAD_DIM),
        _u32("qwen3.vocab_size", VOCAB_SIZE),
        _f32("qwen3.rope.freq_base", checkpoint.rope_theta),
        _f32("qwen3.attention.layer_norm_rms_epsilon", RMS_NORM_EPSILON),
    ]


def _tokenizer_keys(source: ArtifactSource) -> list[Metadata]:
    tokenizer = source.tokenizer
    keys = [
        _text("tokenizer.ggml.model", "gpt2"),
        _text("tokenizer.ggml.pre", "qwen2"),
        _array("tokenizer.ggml.tokens", ValueType.STRING, tokenizer.tokens),
        _array("tokenizer.ggml.token_type", ValueType.I32, tokenizer.types),
        _array("tokenizer.ggml.merges", ValueType.STRING, tokenizer.merges),
        _u32("tokenizer.ggml.eos_token_id", source.checkpoint.eos_token),
        _u32("tokenizer.ggml.padding_token_id", END_OF_TEXT),
        _flag("tokenizer.ggml.add_bos_token", False),
    ]
    if source.chat_template is not None:
        keys.append(_text("tokenizer.chat_template", source.chat_template))
    return keys


def _kipp_keys(source: ArtifactSource, scheme: WeightScheme) -> list[Metadata]:
    hashes = [f"{name}:{digest}" for name, digest in source.file_sha256]
    keys = [
        _u32("kipp.format_version", FORMAT_VERSION),
        _text("kipp.checkpoint.id", source.checkpoint.id),
        _text("kipp.source.repository", source.repository),
        _text("kipp.source.revision", source.revision),
        _text("kipp.quant.scheme", scheme.name),
        _array("kipp.source.sha256", ValueType.STRING, hashes),
        _array("kipp.stop_token_ids", ValueType.U32, source.checkpoint.stop_tokens),
        _flag("kipp.tokenizer.isolates_think_tokens", source.tokenizer.isolates_think_tokens),
    ]
    sampling = source.sampling
    if sampling.temperature is not None:
        keys.append(_f32("kipp.sampling.temperature", sampling.temperature))
    if sampling.top_k is not None:
        keys.append(_u32("kipp.sampling.top_k", sampling.top_k))
    if sampling.top_p is not None:
        keys.append(_f32("kipp.sampling.top_p", sampling.top_p))
    return keys


def write_artifact(path: Path, source: ArtifactSource, scheme: WeightScheme, weights: TensorSource, *,
                   jobs: int | None = None) -> int:
    """Writes the artifact under its name only once it is whole; `jobs` threads encode. Returns its size in bytes."""
    tensors = model_tensors(source.checkpoint, source.num_layers)
    infos = [tensor_info(tensor, scheme) for tensor in tensors]
    with AtomicFile(path) as file:
        writer = GgufWriter(file, artifact_metadata(source, scheme), infos)
        with tqdm(total=writer.total_bytes, unit="B", unit_scale=True, desc=path.name, disable=None) as progress:
            for tensor, is_first, piece in encoded_pieces(path, tensors, scheme, weights, jobs or os.cpu_count() or 1):
                if is_first:
                    writer.begin_tensor(tensor.gguf_name)
                writer.write(piece.data)
                progress.update(piece.nbytes)
        writer.finish()
        file.commit()
    return writer.total_bytes


def encoded_pieces(path: Path, tensors: Sequence[ModelTensor], scheme: WeightScheme, weights: TensorSource,
                   jobs: int) -> Iterator[tuple[ModelTensor, bool, np.ndarray]]:
    """(tensor, whether it begins here, stored bytes) in order, encoded in threads a bounded number of pieces ahead.

    numpy releases the interpreter lock. Pieces of one tensor would keep few threads busy: the queue spans tensors.
    """
    waiting: deque[tuple[ModelTensor, bool, concurrent.futures.Future[np.ndarray]]] = deque()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for tensor in tensors:
            position = 0
            for bits in weights(tensor):
                rows = bits.reshape(-1, tensor.columns)
                piece = pool.submit(encode_piece, path, tensor, position, scheme.encoding_of(tensor), rows)
                waiting.append((tensor, position == 0, piece))
                position += len(rows) * tensor.columns
                if len(waiting) > jobs:
                    tensor_of, is_first, done = waiting.popleft()
                    yield tensor_of, is_first, done.result()
        for tensor_of, is_first, done in waiting:
            yield tensor_of, is_first, done.result()


def encode_piece(path: Path, tensor: ModelTensor, position: int, encoding: Encoding, rows: Array) -> np.ndarray:
    """position: of the first of these weights in the tensor."""
    try:
        return encoding.encode(rows)
    except UnencodableBlockError as error:
        block = position // encoding.block_elements + error.block
        item = f"tensor {tensor.hf_name}, block {block} of {encoding.block_elements} weights"
        found = f"one that needs more: {error.weight:g}"
        raise mismatch(path, item, f"weights whose {error.field} fits fp16 (at most 65504)", found) from error


def tensor_info(tensor: ModelTensor, scheme: WeightScheme) -> TensorInfo:
    encoding = scheme.encoding_of(tensor)
    num_bytes = encoding.num_bytes(tensor.num_elements)
    return TensorInfo(tensor.gguf_name, tuple(reversed(tensor.shape)), encoding.ggml_type, num_bytes)


PIECE_BYTES = BUFFER_BYTES  # what sources should yield: one buffer's worth of source bytes
