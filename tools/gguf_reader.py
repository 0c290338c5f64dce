"""Reads an artifact's header into plain Python values, and tensor bytes in pieces. Strict about what it needs.

The engine's loader (src/gguf) is the authority on what an artifact may hold; this reader serves tools and tests.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.errors import ToolError, mismatch, shown
from tools.gguf_writer import align

MAX_HEADER_BYTES = 64 << 20
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One tensor: offset counts from the start of the data section."""

    dimensions: tuple[int, ...]
    ggml_type: int
    offset: int


class _Cursor:
    """Bounds-checked reads from the header's bytes."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise mismatch(self.path, f"header at byte {self.position}", f"{size} more bytes",
                           len(self.data) - self.position)
        self.position += size
        return self.data[self.position - size : self.position]

    def scalar(self, layout: str) -> int | float | bool:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        return self.take(int(self.scalar("<Q"))).decode("utf-8")

    def typed_value(self) -> tuple[tuple[int, int | None], object]:
        """A value with its type and, if it is an array, its elements' type."""
        kind = int(self.scalar("<I"))
        if kind == _STRING:
            return (kind, None), self.string()
        if kind == _ARRAY:
            element, count = int(self.scalar("<I")), int(self.scalar("<Q"))
            if element == _ARRAY:
                raise ToolError(f"{self.path}: array of arrays")
            return (kind, element), self.array(element, count)
        if kind not in _SCALARS:
            raise mismatch(self.path, f"value type at byte {self.position}", "a GGUF type", kind)
        return (kind, None), self.scalar(_SCALARS[kind])

    def array(self, element: int, count: int) -> list[object]:
        """Numbers in one go and strings in a tight loop: the vocabulary has 300,000 of them."""
        if element in _SCALARS:
            kind = _SCALARS[element][1]
            return list(struct.unpack(f"<{count}{kind}", self.take(count * struct.calcsize(f"<{kind}"))))
        if element != _STRING:
            raise mismatch(self.path, f"element type at byte {self.position}", "a GGUF type", element)
        values: list[object] = []
        data, position, read_length = self.data, self.position, struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = position + 8
            if start > len(data) or (position := start + read_length(data, position)[0]) > len(data):
                raise mismatch(self.path, f"header at byte {start - 8}", "a whole string", "the end")
            values.append(data[start:position].decode("utf-8"))
        self.position = position
        return values


class GgufFile:
    """An open artifact. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolError(f"{path}: cannot open: {error.strerror}") from error
        try:
            self._parse()
        except (UnicodeDecodeError, struct.error) as error:
            os.close(self._fd)
            raise ToolError(f"{path}: broken header: {error}") from error
        except OSError as error:  # a folder, for one
            os.close(self._fd)
            raise ToolError(f"{path}: cannot be read: {error.strerror}") from error
        except BaseException:
            os.close(self._fd)
            raise

    def _parse(self) -> None:
        self.num_bytes = os.fstat(self._fd).st_size
        cursor = _Cursor(os.pread(self._fd, MAX_HEADER_BYTES, 0), self.path)
        if cursor.take(4) != b"GGUF" or cursor.scalar("<I") != 3:
            raise mismatch(self.path, "magic and version", "GGUF 3", "others")
        num_tensors, num_keys = int(cursor.scalar("<Q")), int(cursor.scalar("<Q"))
        self.metadata: dict[str, object] = {}
        self.types: dict[str, tuple[int, int | None]] = {}  # of each key: its type, and an array's elements'
        for _ in range(num_keys):
            key = cursor.string()
            if key in self.metadata:
                raise ToolError(f"{self.path}: metadata key {shown(key)}: there twice")
            self.types[key], self.metadata[key] = cursor.typed_value()
        self.tensors: dict[str, TensorEntry] = {}
        for _ in range(num_tensors):
            name = cursor.string()
            if name in self.tensors:
                raise ToolError(f"{self.path}: tensor {shown(name)}: there twice")
            rank = int(cursor.scalar("<I"))
            dimensions = tuple(int(cursor.scalar("<Q")) for _ in range(rank))
            self.tensors[name] = TensorEntry(dimensions, int(cursor.scalar("<I")), int(cursor.scalar("<Q")))
        self.data_start = align(cursor.position)
        self.header_sha256 = hashlib.sha256(cursor.data[: cursor.position]).hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self._fd)

    def read(self, name: str, offset: int, num_bytes: int) -> bytearray:
        """Bytes of a tensor, which the caller knows to be that long."""
        data = bytearray(num_bytes)
        start = self.data_start + self.tensors[name].offset + offset
        filled = 0
        with memoryview(data) as view:
            while filled < num_bytes:
                try:
                    got = os.preadv(self._fd, [view[filled:]], start + filled)
                except OSError as error:  # which does not say of which file
                    raise ToolError(f"{self.path}: tensor {name}: cannot be read: {error.strerror}") from error
                if got == 0:
                    raise mismatch(self.path, f"tensor {name}", f"{num_bytes} bytes at {start}", filled)
                filled += got
        return data

    def num_elements(self, name: str) -> int:
        return math.prod(self.tensors[name].dimensions)
