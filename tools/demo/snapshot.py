"""The checkpoint's stored form and the Hugging Face snapshot made from it. Needs numpy only; both directions are exact.

Stored: the rows of the embedding that are not zero, and all other tensors, as BF16 cut into a plane of high bytes (sign
and most of the exponent: compressible) and one of low bytes (mantissa: hardly), each packed by xz.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tools.atomic_file import write_file
from tools.errors import ToolError
from tools.strict_json import parse_json_object

EMBEDDING = "model.embed_tokens.weight"
FILES = ("weights-hi.xz", "weights-lo.xz", "rows.xz")
TOKENIZER = Path(__file__).resolve().parents[2] / "data" / "qwen3-tokenizer"
GENERATION_CONFIG = {
    "bos_token_id": 151643,
    "do_sample": True,
    "eos_token_id": [151645, 151643],
    "pad_token_id": 151643,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "transformers_version": "4.51.0",
}


class SnapshotError(ToolError):
    """A stored file that is not what the manifest says."""


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def to_bf16(values: np.ndarray) -> np.ndarray:
    """FP32 to the bits of BF16, to nearest even. No NaN is expected and none is kept."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if not np.isfinite(values).all():
        raise SnapshotError("a weight is not finite")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def safetensors_bytes(tensors: dict[str, np.ndarray]) -> bytes:
    """A safetensors file of BF16 tensors (given as uint16), always the same bytes: names sorted, no gaps."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        size = tensors[name].size * 2
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return (
        len(text).to_bytes(8, "little")
        + text
        + b"".join(tensors[name].astype("<u2").tobytes() for name in sorted(tensors))
    )


def expand(tensors: dict[str, np.ndarray], rows: np.ndarray, vocab_size: int) -> dict[str, np.ndarray]:
    """The embedding at full height: the stored rows at their ids, zeros elsewhere."""
    compact = tensors[EMBEDDING]
    full = np.zeros((vocab_size, compact.shape[1]), dtype=np.uint16)
    full[rows] = compact
    return {**tensors, EMBEDDING: full}


def pack(
    folder: Path,
    tensors: dict[str, np.ndarray],
    rows: np.ndarray,
    config: dict[str, Any],
    training: dict[str, Any],
    preset: int = 6,
) -> dict[str, Any]:
    """Writes the stored form and its manifest; `tensors` are BF16 bits with the compact embedding."""
    flat = np.concatenate([tensors[name].reshape(-1) for name in sorted(tensors)]).astype("<u2").view(np.uint8)
    steps = np.diff(rows.astype("<i4"), prepend=np.int32(0)).astype("<i4")
    planes = dict(zip(FILES, (flat[1::2].tobytes(), flat[0::2].tobytes(), steps.tobytes()), strict=True))
    with ThreadPoolExecutor() as threads:  # xz releases the interpreter lock
        stored = dict(
            zip(planes, threads.map(lambda plane: lzma.compress(plane, preset=preset), planes.values()), strict=True)
        )
    weights = safetensors_bytes(expand(tensors, rows, int(config["vocab_size"])))
    manifest = {
        "format_version": 1,
        "model_sha256": sha256(weights),
        "files": {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in stored.items()},
        "tensors": {name: list(tensors[name].shape) for name in sorted(tensors)},
        "num_rows": len(rows),
        "config": config,
        "generation_config": GENERATION_CONFIG,
        "training": training,
    }
    stored["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    for name, data in stored.items():
        write_file(folder / name, data)
    return manifest


@contextlib.contextmanager
def well_formed(folder: Path) -> Iterator[None]:
    """A manifest that lacks a field, or has one of the wrong kind, is the folder's fault and not the program's."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, lzma.LZMAError) as error:
        raise SnapshotError(f"{folder}: not a stored checkpoint: {type(error).__name__}: {error}") from error


def load_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    return parse_json_object(path.read_bytes(), path)


def _load_plane(path: Path, expected: str) -> np.ndarray:
    data = path.read_bytes()
    if sha256(data) != expected:
        raise SnapshotError(f"{path}: expected sha256 {expected}, found {sha256(data)}")
    return np.frombuffer(lzma.decompress(data), dtype=np.uint8)


def load_stored(folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, Any]]:
    """BF16 tensors with the compact embedding, the ids of its rows, and the manifest; every file is verified."""
    manifest = load_manifest(folder)
    high, low, steps = (_load_plane(folder / name, manifest["files"][name]["sha256"]) for name in FILES)
    flat = (high.astype(np.uint16) << 8) | low
    tensors, offset = {}, 0
    for name, shape in manifest["tensors"].items():
        size = int(np.prod(shape))
        tensors[name] = flat[offset : offset + size].reshape(shape)
        offset += size
    if offset != len(flat):
        raise SnapshotError(f"{folder}: the manifest names {offset} weights, the planes hold {len(flat)}")
    rows = np.cumsum(steps.view("<i4").astype(np.int64))
    return tensors, rows, manifest


def sidecars(manifest: dict[str, Any]) -> dict[str, bytes]:
    """The snapshot's files beside the weights."""
    files = {f"{name}.json": (json.dumps(manifest[name], indent=2) + "\n").encode()
             for name in ("config", "generation_config")}
    files["tokenizer.json"] = lzma.decompress((TOKENIZER / "tokenizer.json.xz").read_bytes())
    files["tokenizer_config.json"] = (TOKENIZER / "tokenizer_config.json").read_bytes()
    return files


def unpack(folder: Path, output: Path) -> dict[str, Any]:
    """Writes the Hugging Face snapshot: weights (always the same bytes), configuration, tokenizer."""
    with well_formed(folder):
        tensors, rows, manifest = load_stored(folder)
        weights = safetensors_bytes(expand(tensors, rows, int(manifest["config"]["vocab_size"])))
        expected = manifest["model_sha256"]
        files = sidecars(manifest)
    if sha256(weights) != expected:
        raise SnapshotError(f"model.safetensors: expected sha256 {expected}, found {sha256(weights)}")
    for name, data in files.items():
        write_file(output / name, data)
    write_file(output / "model.safetensors", weights)
    return manifest
