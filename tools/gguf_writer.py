"""A strict, streaming writer of GGUF v3: the header first, then each tensor's bytes in the announced order.

Alignment is 128; every tensor starts on a multiple of it, gaps are zeros, and the file ends with the last tensor's last
byte. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Sequence

from tools.atomic_file import AtomicFile
from tools.errors import ToolError

ALIGNMENT = 128
MAX_TENSOR_NAME_BYTES = 63  # GGML stores names in 64 bytes with a terminator


class ValueType(enum.IntEnum):
    """The metadata types that Kipp's artifacts use, with their codes in the file."""

    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9


@dataclasses.dataclass(frozen=True)
class Metadata:
    """One key with its typed value; for an array, value is a sequence and element_type its elements' type."""

    key: str
    type: ValueType
    value: object
    element_type: ValueType | None = None


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header announces it; dimensions are GGML's, fastest first (columns, rows)."""

    name: str
    dimensions: tuple[int, ...]
    ggml_type: int
    num_bytes: int


def align(position: int) -> int:
    return (position + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def tensor_offsets(tensors: Sequence[TensorInfo]) -> list[int]:
    """Where each tensor starts, counted from the start of the data section."""
    offsets, position = [], 0
    for tensor in tensors:
        offsets.append(align(position))
        position = offsets[-1] + tensor.num_bytes
    return offsets


def encode_header(metadata: Sequence[Metadata], tensors: Sequence[TensorInfo]) -> bytes:
    """Magic, version, counts, metadata and tensor entries, without the zeros before the data section."""
    _require_unique("metadata key", [entry.key for entry in metadata])
    _require_unique("tensor", [tensor.name for tensor in tensors])
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    for entry in metadata:
        parts.append(_string(entry.key))
        parts.append(struct.pack("<I", entry.type))
        parts.append(_array(entry) if entry.type == ValueType.ARRAY else _scalar(entry.key, entry.type, entry.value))
    for tensor, offset in zip(tensors, tensor_offsets(tensors), strict=True):
        if len(tensor.name.encode()) > MAX_TENSOR_NAME_BYTES:
            raise ToolError(f"tensor {tensor.name}: its name is longer than {MAX_TENSOR_NAME_BYTES} bytes")
        parts.append(_string(tensor.name))
        parts.append(struct.pack(f"<I{len(tensor.dimensions)}Q", len(tensor.dimensions), *tensor.dimensions))
        parts.append(struct.pack("<IQ", tensor.ggml_type, offset))
    return b"".join(parts)


def _require_unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ToolError(f"{what} {name}: given twice")
        seen.add(name)


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _scalar(key: str, kind: ValueType, value: object) -> bytes:
    try:
        if kind == ValueType.STRING and isinstance(value, str):
            return _string(value)
        if kind == ValueType.BOOL and isinstance(value, bool):
            return struct.pack("<?", value)
        if kind in (ValueType.U32, ValueType.I32) and isinstance(value, int) and not isinstance(value, bool):
            return struct.pack("<I" if kind == ValueType.U32 else "<i", value)
        if kind == ValueType.F32 and isinstance(value, float):
            return struct.pack("<f", value)
    except (struct.error, OverflowError) as error:
        raise ToolError(f"metadata key {key}: {value!r} does not fit {kind.name}: {error}") from error
    raise ToolError(f"metadata key {key}: {value!r} is not a {kind.name}")


def _array(entry: Metadata) -> bytes:
    if entry.element_type is None or not isinstance(entry.value, Sequence) or isinstance(entry.value, str | bytes):
        raise ToolError(f"metadata key {entry.key}: an array needs a sequence and an element type")
    start = struct.pack("<IQ", entry.element_type, len(entry.value))
    if entry.element_type == ValueType.STRING and set(map(type, entry.value)) <= {str}:
        return start + b"".join(map(_string, entry.value))  # the vocabulary: one at a time takes seconds
    return start + b"".join([_scalar(entry.key, entry.element_type, value) for value in entry.value])


class GgufWriter:
    """Writes one artifact into an open AtomicFile. Tensors arrive in the announced order, each in any pieces."""

    def __init__(self, file: AtomicFile, metadata: Sequence[Metadata], tensors: Sequence[TensorInfo]) -> None:
        self._file = file
        self._tensors = list(tensors)
        header = encode_header(metadata, tensors)
        self._data_start = align(len(header))
        self._offsets = tensor_offsets(tensors)
        self._next_tensor = 0
        self._remaining = 0
        last_end = self._offsets[-1] + tensors[-1].num_bytes if tensors else 0
        self.total_bytes = self._data_start + last_end
        file.require_space(self.total_bytes)
        file.write(header)
        self._pad_to(self._data_start)

    def _pad_to(self, position: int) -> None:
        self._file.write(bytes(position - self._file.num_bytes))

    def begin_tensor(self, name: str) -> None:
        if self._remaining:
            raise ToolError(f"tensor {name}: the one before it lacks {self._remaining} bytes")
        if self._next_tensor == len(self._tensors) or self._tensors[self._next_tensor].name != name:
            raise ToolError(f"tensor {name}: not the next announced one")
        self._pad_to(self._data_start + self._offsets[self._next_tensor])
        self._remaining = self._tensors[self._next_tensor].num_bytes
        self._next_tensor += 1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        size = memoryview(data).nbytes
        if size > self._remaining:
            name = self._tensors[self._next_tensor - 1].name if self._next_tensor else "(none begun)"
            raise ToolError(f"tensor {name}: {size} bytes offered, {self._remaining} left to write")
        self._file.write(data)
        self._remaining -= size

    def finish(self) -> None:
        """Checks that every announced byte was written. The caller commits the file."""
        if self._remaining or self._next_tensor != len(self._tensors):
            begun = f"{self._next_tensor} of {len(self._tensors)} tensors begun"
            raise ToolError(f"{begun}, {self._remaining} bytes of the last one lacking")
