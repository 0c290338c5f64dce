"""A strict reader of safetensors: header checked against the file, data read as raw bytes in pieces.

The safetensors package cannot hand bfloat16 to numpy, and maps whole files. Reading with pread keeps resident memory at
one piece and turns a file that shrinks under us into an error rather than SIGBUS.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.errors import ToolError, mismatch
from tools.strict_json import parse_json_object

MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.safetensors", re.ASCII)
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
DTYPE_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
               "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: start is an offset in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class SafetensorsFile:
    """One open file. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolError(f"{path}: cannot open: {error.strerror}") from error
        try:
            self.num_bytes = os.fstat(self._fd).st_size
            self.tensors = self._parse_header()
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, entry: TensorEntry, offset: int, num_bytes: int) -> bytearray:
        """Bytes offset…offset+num_bytes-1 of a tensor."""
        if offset < 0 or num_bytes < 0 or offset + num_bytes > entry.num_bytes:
            raise ToolError(f"{self.path}: read of {num_bytes} bytes at {offset} in a tensor of {entry.num_bytes}")
        return self._read_at(entry.start + offset, num_bytes)

    def _read_at(self, position: int, num_bytes: int) -> bytearray:
        data = bytearray(num_bytes)
        filled = 0
        with memoryview(data) as view:
            while filled < num_bytes:
                got = os.preadv(self._fd, [view[filled:]], position + filled)
                if got == 0:
                    raise mismatch(self.path, "length", f"at least {position + num_bytes} bytes", position + filled)
                filled += got
        return data

    def _parse_header(self) -> dict[str, TensorEntry]:
        if self.num_bytes < 8:
            raise mismatch(self.path, "length", "at least 8 bytes", self.num_bytes)
        header_bytes = int.from_bytes(self._read_at(0, 8), "little")
        limit = min(MAX_HEADER_BYTES, self.num_bytes - 8)
        if header_bytes > limit:
            raise mismatch(self.path, "header length", f"at most {limit} bytes", header_bytes)
        document = parse_json_object(bytes(self._read_at(8, header_bytes)), self.path)
        metadata = document.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise mismatch(self.path, "__metadata__", "an object of strings", metadata)
        data_start = 8 + header_bytes
        tensors = {name: self._entry(name, value, data_start) for name, value in document.items()}
        self._check_layout(tensors, data_start)
        return tensors

    def _entry(self, name: str, value: object, data_start: int) -> TensorEntry:
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            raise mismatch(self.path, f"tensor {name}", "dtype, shape and data_offsets", value)
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise mismatch(self.path, f"tensor {name}: dtype", "a known dtype", dtype)
        if not _is_counts(shape):
            raise mismatch(self.path, f"tensor {name}: shape", "a list of sizes", shape)
        if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise mismatch(self.path, f"tensor {name}: data_offsets", "[begin, end]", offsets)
        num_bytes = _tensor_bytes(shape, DTYPE_BYTES[dtype])
        if offsets[1] - offsets[0] != num_bytes:
            raise mismatch(self.path, f"tensor {name}: length", f"{num_bytes} bytes", offsets[1] - offsets[0])
        return TensorEntry(dtype, tuple(shape), data_start + offsets[0], num_bytes)

    def _check_layout(self, tensors: dict[str, TensorEntry], data_start: int) -> None:
        """The data section must be covered exactly: no gap, no overlap, nothing after it."""
        position = data_start
        for name, entry in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].num_bytes)):
            if entry.start != position:
                raise mismatch(self.path, f"tensor {name}: start", position - data_start, entry.start - data_start)
            position += entry.num_bytes
        if position != self.num_bytes:
            raise mismatch(self.path, "file length", f"{position} bytes", self.num_bytes)


def _tensor_bytes(shape: list[int], item_bytes: int) -> int:
    """The product, or just some number above 2^63: millions of hostile dimensions must not cost hours."""
    if 0 in shape:
        return 0
    num_bytes = item_bytes
    for size in shape:
        num_bytes *= size
        if num_bytes >= 1 << 63:
            break
    return num_bytes


def _is_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


@dataclasses.dataclass(frozen=True)
class ShardIndex:
    """Which shard holds which tensor; total_bytes as the index claims it, None if it does not."""

    weight_map: dict[str, str]
    total_bytes: object


def parse_index(data: bytes, path: Path | str) -> ShardIndex:
    """model.safetensors.index.json. Shards are plain names: an index cannot point out of its folder."""
    document = parse_json_object(data, path)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise mismatch(path, "weight_map", "a non-empty object", weight_map)
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not SHARD_NAME.fullmatch(shard):
            raise mismatch(path, f"weight_map[{tensor}]", "the name of a .safetensors file", shard)
    metadata = document.get("metadata")
    return ShardIndex(weight_map, metadata.get("total_size") if isinstance(metadata, dict) else None)


class SnapshotWeights:
    """All tensors of a snapshot, from one file or from shards that agree with their index. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, SafetensorsFile] = {}
        single, index = folder / SINGLE_NAME, folder / INDEX_NAME
        if single.exists() and index.exists():
            raise ToolError(f"{folder}: holds {SINGLE_NAME} and {INDEX_NAME}; which of them counts is not clear")
        try:
            if index.exists():
                self._open_shards(index)
            elif single.exists():
                self.files[SINGLE_NAME] = SafetensorsFile(single)
            else:
                raise ToolError(f"{folder}: holds neither {SINGLE_NAME} nor {INDEX_NAME}")
        except BaseException:
            self.close()
            raise
        self.location = {name: file for file in self.files.values() for name in file.tensors}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def entry(self, name: str) -> TensorEntry:
        return self.location[name].tensors[name]

    def read(self, name: str, offset: int, num_bytes: int) -> bytearray:
        file = self.location[name]
        return file.read(file.tensors[name], offset, num_bytes)

    def _open_shards(self, path: Path) -> None:
        index = parse_index(path.read_bytes(), path)
        for shard in sorted(set(index.weight_map.values())):
            self.files[shard] = SafetensorsFile(self.folder / shard)
        for shard, file in self.files.items():
            listed = {tensor for tensor, name in index.weight_map.items() if name == shard}
            for tensor in sorted(listed ^ file.tensors.keys()):
                place = "only in the index" if tensor in listed else "only in the shard"
                raise mismatch(path, f"tensor {tensor} of {shard}", "in index and shard", place)
        self._check_total(index.total_bytes, path)

    def _check_total(self, expected: object, path: Path) -> None:
        total = sum(entry.num_bytes for file in self.files.values() for entry in file.tensors.values())
        if expected is not None and expected != total:
            raise mismatch(path, "metadata.total_size", total, expected)
