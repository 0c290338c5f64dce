"""What reference vectors are made from: a snapshot folder or an artifact, with its identity, tokenizer and weights."""

from __future__ import annotations

import dataclasses
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tools.artifact import SYNTHETIC_REPOSITORY, synthetic_repository
from tools.checkpoints import FIRST_THINK_TOKEN, NUM_TOKENS, Checkpoint, find_checkpoint
from tools.errors import ToolError, mismatch
from tools.gguf_reader import GgufFile
from tools.model_tensors import ModelTensor, row_pieces
from tools.safetensors_reader import SnapshotWeights
from tools.snapshot import check_config, check_tensors, read_chat_template, read_config, read_marker
from tools.strict_json import parse_json_object
from tools.synthetic_snapshot import MARKER_NAME, TOKENIZER_DATA, twin_revision
from tools.tokenizer_metadata import parse_tokenizer, without_think_tokens
from tools.weight_schemes import SCHEMES, Encoding, WeightScheme

PIECE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class ReferenceSource:
    """Identity of what the vectors describe, as it goes into the manifest."""

    path: Path
    checkpoint: Checkpoint
    num_layers: int
    repository: str
    revision: str
    quant_scheme: str
    header_sha256: str | None  # of the artifact; None for a snapshot
    tokenizer_json: str
    chat_template: str | None

    @property
    def num_tokens(self) -> int:
        """Ids below it have a token and may be generated."""
        tokenizer = parse_tokenizer(self.tokenizer_json.encode(), self.path)
        return NUM_TOKENS if tokenizer.isolates_think_tokens else FIRST_THINK_TOKEN


def open_source(path: Path, checkpoint_id: str | None) -> ReferenceSource:
    return _artifact_source(path) if path.is_file() else _snapshot_source(path, checkpoint_id)


def _snapshot_source(folder: Path, checkpoint_id: str | None) -> ReferenceSource:
    marker_path = folder / MARKER_NAME
    if checkpoint_id is None and marker_path.exists():
        checkpoint_id = str(parse_json_object(marker_path.read_bytes(), marker_path).get("id"))
    if checkpoint_id is None:
        raise ToolError(f"{folder}: several entries share their dimensions; name one with --checkpoint")
    checkpoint = find_checkpoint(checkpoint_id)
    marker = read_marker(folder, checkpoint)
    num_layers = marker.num_layers if marker else checkpoint.num_layers
    check_config(read_config(folder), folder / "config.json", checkpoint, num_layers)
    with SnapshotWeights(folder) as weights:
        check_tensors(weights, checkpoint, num_layers)
    tokenizer_path = folder / "tokenizer.json"
    parse_tokenizer(tokenizer_path.read_bytes(), tokenizer_path)
    return ReferenceSource(
        path=folder, checkpoint=checkpoint, num_layers=num_layers,
        repository=synthetic_repository(checkpoint, num_layers) if marker else checkpoint.repository,
        revision=twin_revision(marker.seed) if marker else checkpoint.revision,
        quant_scheme="bf16", header_sha256=None, tokenizer_json=tokenizer_path.read_text(encoding="utf-8"),
        chat_template=read_chat_template(folder))


def _artifact_source(path: Path) -> ReferenceSource:
    with GgufFile(path) as file:
        metadata = file.metadata
        checkpoint = find_checkpoint(str(metadata.get("kipp.checkpoint.id")))
        num_layers = int(str(metadata["qwen3.block_count"]))
        repository = str(metadata["kipp.source.repository"])
        scheme = str(metadata["kipp.quant.scheme"])
        if scheme not in SCHEMES:
            raise mismatch(path, "kipp.quant.scheme", f"one of {', '.join(SCHEMES)}", scheme)
        if not repository.startswith(SYNTHETIC_REPOSITORY) and num_layers != checkpoint.num_layers:
            raise mismatch(path, "qwen3.block_count", checkpoint.num_layers, num_layers)
        return ReferenceSource(
            path=path, checkpoint=checkpoint, num_layers=num_layers, repository=repository,
            revision=str(metadata["kipp.source.revision"]), quant_scheme=scheme,
            header_sha256=file.header_sha256, tokenizer_json=_tokenizer_of(metadata, path),
            chat_template=_optional_text(metadata.get("tokenizer.chat_template")))


def _optional_text(value: object) -> str | None:
    return None if value is None else str(value)


def _tokenizer_of(metadata: dict[str, object], path: Path) -> str:
    """The genuine tokenizer.json in the artifact's spelling of the think/tool tokens, checked token by token."""
    data = lzma.decompress(TOKENIZER_DATA.read_bytes())
    if not metadata["kipp.tokenizer.isolates_think_tokens"]:
        data = without_think_tokens(data, TOKENIZER_DATA)
    parsed = parse_tokenizer(data, TOKENIZER_DATA)
    found = (metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"])
    if found != (parsed.tokens, parsed.merges):
        raise mismatch(path, "tokenizer.ggml.tokens and .merges", "the family's", "others")
    return data.decode("utf-8")


def artifact_pieces(file: GgufFile, tensor: ModelTensor,
                    scheme: WeightScheme) -> Iterator[tuple[Encoding, np.ndarray]]:
    """The stored bytes of one tensor of an artifact, in whole rows, and how they are encoded."""
    entry = file.tensors.get(tensor.gguf_name)
    if entry is None or entry.dimensions != tuple(reversed(tensor.shape)):
        raise mismatch(file.path, f"tensor {tensor.gguf_name}", list(reversed(tensor.shape)),
                       "no such tensor" if entry is None else list(entry.dimensions))
    encoding = scheme.encoding_of(tensor)
    if entry.ggml_type != encoding.ggml_type:
        raise mismatch(file.path, f"tensor {tensor.gguf_name}: type", f"{encoding.name} ({encoding.ggml_type})",
                       entry.ggml_type)
    row_bytes = encoding.num_bytes(tensor.columns)
    for first_row, num_rows in row_pieces(tensor, PIECE_BYTES):
        data = file.read(tensor.gguf_name, first_row * row_bytes, num_rows * row_bytes)
        yield encoding, np.frombuffer(data, np.uint8)
