"""The GGUF writer: bytes as the format says, and a refusal of everything that would make a wrong file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tools.atomic_file import AtomicFile
from tools.errors import ToolError
from tools.gguf_reader import GgufFile
from tools.gguf_writer import GgufWriter, Metadata, TensorInfo, ValueType, align, encode_header, tensor_offsets

TENSORS = [TensorInfo("a", (3, 5), 30, 30), TensorInfo("b", (64,), 30, 128), TensorInfo("c", (1,), 30, 2)]
METADATA = [
    Metadata("text", ValueType.STRING, "größe"),
    Metadata("count", ValueType.U32, 4_000_000_000),
    Metadata("negative", ValueType.I32, -5),
    Metadata("real", ValueType.F32, 0.1),
    Metadata("flag", ValueType.BOOL, True),
    Metadata("words", ValueType.ARRAY, ["x", ""], ValueType.STRING),
    Metadata("numbers", ValueType.ARRAY, [1, 2, 3], ValueType.U32),
    Metadata("general.alignment", ValueType.U32, 128),
]


def write(path: Path, pieces: dict[str, list[bytes]]) -> None:
    with AtomicFile(path) as file:
        writer = GgufWriter(file, METADATA, TENSORS)
        for name, parts in pieces.items():
            writer.begin_tensor(name)
            for part in parts:
                writer.write(part)
        writer.finish()
        file.commit()


GOOD = {"a": [b"A" * 10, b"A" * 20], "b": [b"B" * 128], "c": [b"CC"]}


def test_layout_of_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write(path, GOOD)
    data = path.read_bytes()
    header = encode_header(METADATA, TENSORS)
    start = align(len(header))
    assert data[: len(header)] == header
    assert data[:24] == b"GGUF" + struct.pack("<IQQ", 3, 3, 8)
    first_key = struct.pack("<Q", 4) + b"text" + struct.pack("<IQ", 8, 7) + "größe".encode()
    assert data[24 : 24 + len(first_key)] == first_key
    assert tensor_offsets(TENSORS) == [0, 128, 256]
    assert start % 128 == 0
    assert data[start:] == b"A" * 30 + bytes(98) + b"B" * 128 + b"CC"  # ends with the last tensor's last byte
    assert data[len(header):start] == bytes(start - len(header))


def test_the_reader_returns_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write(path, GOOD)
    with GgufFile(path) as file:
        assert file.metadata.pop("real") == pytest.approx(0.1, rel=1e-7)
        assert file.metadata == {entry.key: entry.value for entry in METADATA if entry.key != "real"}
        assert {name: entry.dimensions for name, entry in file.tensors.items()} == {"a": (3, 5), "b": (64,), "c": (1,)}
        assert file.read("a", 0, 30) == b"A" * 30
        assert file.read("c", 1, 1) == b"C"


def test_the_gguf_package_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    path = tmp_path / "small.gguf"
    write(path, GOOD | {"a": [bytes(30)]})
    reader = gguf.GGUFReader(path)
    assert [tensor.name for tensor in reader.tensors] == ["a", "b", "c"]
    assert reader.tensors[1].data.tobytes() == b"B" * 128


@pytest.mark.parametrize(("entry", "words"), [
    (Metadata("k", ValueType.U32, -1), "does not fit U32"),
    (Metadata("k", ValueType.U32, 1 << 32), "does not fit U32"),
    (Metadata("k", ValueType.I32, 1 << 31), "does not fit I32"),
    (Metadata("k", ValueType.U32, True), "is not a U32"),
    (Metadata("k", ValueType.BOOL, 1), "is not a BOOL"),
    (Metadata("k", ValueType.F32, 1), "is not a F32"),
    (Metadata("k", ValueType.F32, 1e300), "does not fit F32"),
    (Metadata("k", ValueType.STRING, b"x"), "is not a STRING"),
    (Metadata("k", ValueType.ARRAY, "text", ValueType.STRING), "needs a sequence"),
    (Metadata("k", ValueType.ARRAY, [1]), "an element type"),
    (Metadata("k", ValueType.ARRAY, [1, "2"], ValueType.U32), "is not a U32"),
    (Metadata("text", ValueType.STRING, "again"), "given twice"),
])
def test_bad_metadata_is_refused(entry: Metadata, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        encode_header([*METADATA, entry], TENSORS)


@pytest.mark.parametrize(("pieces", "words"), [
    ({"a": [b"A" * 29], "b": [b"B" * 128], "c": [b"CC"]}, "lacks 1 bytes"),
    ({"a": [b"A" * 31], "b": [b"B" * 128], "c": [b"CC"]}, "31 bytes offered, 30 left"),
    ({"b": [b"B" * 128]}, "not the next announced"),
    ({"a": [b"A" * 30], "b": [b"B" * 128]}, "2 of 3 tensors"),
    ({"a": [b"A" * 30], "b": [b"B" * 128], "c": [b"C"]}, "1 bytes of the last one lacking"),
    ({"a": [b"A" * 30], "b": [b"B" * 128], "c": [b"CC"], "d": [b""]}, "not the next announced"),
])
def test_a_tensor_that_differs_from_its_announcement_leaves_no_file(pieces: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=words):
        write(tmp_path / "bad.gguf", pieces)
    assert list(tmp_path.iterdir()) == []


def test_tensor_names_are_checked() -> None:
    with pytest.raises(ToolError, match="longer than 63 bytes"):
        encode_header([], [TensorInfo("n" * 64, (1,), 30, 2)])
    with pytest.raises(ToolError, match="tensor a: given twice"):
        encode_header([], [TENSORS[0], TENSORS[0]])


def test_every_truncation_of_a_header_is_an_error(tmp_path: Path) -> None:
    header = encode_header(METADATA, TENSORS)
    path = tmp_path / "cut.gguf"
    for length in range(len(header)):
        path.write_bytes(header[:length])
        with pytest.raises(ToolError, match=r"cut\.gguf"):
            GgufFile(path)
