"""The safetensors reader: every way to break a file or an index is an error that names file and item."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tools.errors import ToolError
from tools.safetensors_reader import INDEX_NAME, SINGLE_NAME, SafetensorsFile, SnapshotWeights

ENTRY_A = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
ENTRY_B = {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]}


def build(path: Path, header: object, data: bytes = bytes(20), header_bytes: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if header_bytes is None else header_bytes) + text + data)
    return path


def test_it_agrees_with_the_reference_writer(tmp_path: Path) -> None:
    arrays = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "empty": np.zeros((0, 7), np.float32),
              "y": np.arange(5, dtype=np.int32)}
    save_file(arrays, tmp_path / "f.safetensors", metadata={"format": "pt"})
    with SafetensorsFile(tmp_path / "f.safetensors") as file:
        assert file.tensors.keys() == arrays.keys()
        for name, array in arrays.items():
            entry = file.tensors[name]
            assert entry.shape == array.shape
            assert bytes(file.read(entry, 0, entry.num_bytes)) == array.tobytes()
        assert bytes(file.read(file.tensors["x"], 8, 4)) == struct.pack("<f", 2.0)
        with pytest.raises(ToolError, match="read of 5 bytes"):
            file.read(file.tensors["x"], 44, 5)


BROKEN_ENTRIES = [
    ({"a": ENTRY_A | {"dtype": "BF17"}, "b": ENTRY_B}, "tensor a: dtype"),
    ({"a": ENTRY_A | {"shape": [2, -3]}, "b": ENTRY_B}, "tensor a: shape"),
    ({"a": ENTRY_A | {"shape": [2, True]}, "b": ENTRY_B}, "tensor a: shape"),
    ({"a": ENTRY_A | {"shape": [2.0, 3]}, "b": ENTRY_B}, "tensor a: shape"),
    ({"a": ENTRY_A | {"shape": "23"}, "b": ENTRY_B}, "tensor a: shape"),
    ({"a": ENTRY_A | {"shape": [2, 4]}, "b": ENTRY_B}, "tensor a: length: expected 16 bytes, found 12"),
    ({"a": ENTRY_A | {"shape": [1 << 62, 1 << 62]}, "b": ENTRY_B}, "tensor a: length"),
    ({"a": ENTRY_A | {"data_offsets": [12, 0]}, "b": ENTRY_B}, "tensor a: data_offsets"),
    ({"a": ENTRY_A | {"data_offsets": [0, 12, 20]}, "b": ENTRY_B}, "tensor a: data_offsets"),
    ({"a": ENTRY_A | {"data_offsets": [-12, 0]}, "b": ENTRY_B}, "tensor a: data_offsets"),
    ({"a": ENTRY_A, "b": ENTRY_B | {"data_offsets": [8, 16]}}, "tensor b: start: expected 12, found 8"),
    ({"a": ENTRY_A, "b": ENTRY_B | {"data_offsets": [16, 24]}}, "tensor b: start: expected 12, found 16"),
    ({"a": ENTRY_A}, "file length"),
    ({"a": ENTRY_A, "b": ENTRY_B, "c": ENTRY_B | {"data_offsets": [20, 28]}}, "file length"),
    ({"a": ENTRY_A, "b": {"dtype": "F32", "shape": [2]}}, "tensor b: expected dtype, shape and data_offsets"),
    ({"a": ENTRY_A, "b": ENTRY_B | {"more": 1}}, "tensor b: expected dtype, shape and data_offsets"),
    ({"a": ENTRY_A, "b": [1]}, "tensor b"),
    ({"__metadata__": {"n": 1}, "a": ENTRY_A, "b": ENTRY_B}, "__metadata__"),
    ([1], "expected a JSON object"),
    (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
    (b'{"a": NaN}', "NaN is not JSON"),
    (b'{"a": ', "not valid JSON"),
    (b'{"a\xff": 1}', "not valid JSON"),
    (b"[" * 100_000, "not valid JSON"),
]


@pytest.mark.parametrize(("header", "words"), BROKEN_ENTRIES)
def test_a_broken_header_is_refused(header: object, words: str, tmp_path: Path) -> None:
    path = build(tmp_path / "broken.safetensors", header)
    with pytest.raises(ToolError, match=r"broken\.safetensors") as caught:
        SafetensorsFile(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("header_bytes", [1 << 20, 1 << 63, (1 << 64) - 1])
def test_a_header_longer_than_the_file_is_refused(header_bytes: int, tmp_path: Path) -> None:
    path = build(tmp_path / "long.safetensors", {"a": ENTRY_A, "b": ENTRY_B}, header_bytes=header_bytes)
    with pytest.raises(ToolError, match="header length"):
        SafetensorsFile(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path / "cut.safetensors", {"a": ENTRY_A, "b": ENTRY_B})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ToolError, match=r"cut\.safetensors"):
            SafetensorsFile(path)


def test_a_file_that_shrinks_while_open_is_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "f.safetensors", {"a": ENTRY_A, "b": ENTRY_B})
    with SafetensorsFile(path) as file:
        with open(path, "r+b") as handle:
            handle.truncate(file.num_bytes - 4)
        with pytest.raises(ToolError, match="length"):
            file.read(file.tensors["b"], 0, 8)


def shards(folder: Path) -> dict:
    """Two good shards; returns the index document."""
    save_file({"x": np.zeros(4, np.float32)}, folder / "model-1.safetensors")
    save_file({"y": np.zeros(2, np.float32)}, folder / "model-2.safetensors")
    return {"metadata": {"total_size": 24}, "weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}


def test_shards_are_found_through_their_index(tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_text(json.dumps(shards(tmp_path)))
    with SnapshotWeights(tmp_path) as weights:
        assert weights.location.keys() == {"x", "y"}
        assert weights.read("y", 0, 8) == bytes(8)


BROKEN_INDICES = [
    (lambda index: index["weight_map"].pop("y"), None),
    (lambda index: index["weight_map"].update(z="model-2.safetensors"), "tensor z of model-2.safetensors"),
    (lambda index: index["weight_map"].update(x="model-2.safetensors"), "tensor x of model-2.safetensors"),
    (lambda index: index["weight_map"].update(y="model-3.safetensors"), "cannot open"),
    (lambda index: index["weight_map"].update(y="../model-2.safetensors"), "the name of a .safetensors file"),
    (lambda index: index["weight_map"].update(y=7), "the name of a .safetensors file"),
    (lambda index: index["weight_map"].update(y="model-2.bin"), "the name of a .safetensors file"),
    (lambda index: index.update(weight_map={}), "weight_map"),
    (lambda index: index.pop("weight_map"), "weight_map"),
    (lambda index: index["metadata"].update(total_size=25), "metadata.total_size: expected 24, found 25"),
]


@pytest.mark.parametrize(("change", "words"), BROKEN_INDICES)
def test_an_index_that_disagrees_with_its_shards_is_refused(change, words: str | None, tmp_path: Path) -> None:
    index = shards(tmp_path)
    change(index)
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    if words is None:  # a shard that the index no longer names is not part of the snapshot; the total still counts it
        words = "metadata.total_size: expected 16, found 24"
    with pytest.raises(ToolError) as caught:
        SnapshotWeights(tmp_path)
    assert words in str(caught.value)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    index = shards(tmp_path)
    save_file({"x": np.zeros(4, np.float32), "y": np.zeros(2, np.float32)}, tmp_path / "model-2.safetensors")
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(ToolError, match=r"tensor x of model-2\.safetensors: expected in index and shard"):
        SnapshotWeights(tmp_path)


def test_single_file_and_index_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_text(json.dumps(shards(tmp_path)))
    save_file({"x": np.zeros(4, np.float32)}, tmp_path / SINGLE_NAME)
    with pytest.raises(ToolError, match="not clear"):
        SnapshotWeights(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"neither model\.safetensors nor"):
        SnapshotWeights(tmp_path)
