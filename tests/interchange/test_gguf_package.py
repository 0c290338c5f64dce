"""The gguf package reads artifacts and exports as Kipp's own reader does: names, shapes, types, keys and every byte."""

from __future__ import annotations

import functools
from pathlib import Path

import gguf
import numpy as np
import pytest
from exported_models import Model

from tools.gguf_reader import GgufFile
from tools.weight_schemes import AFFINE4_GS32, Q8_0

PIECE_BYTES = 64 << 20


@functools.lru_cache
def package_reader(path: Path) -> gguf.GGUFReader:
    """Opening one takes the package many seconds: it makes several arrays of every token."""
    return gguf.GGUFReader(path)


@pytest.fixture(params=["artifact", "export"])
def path(model: Model, request: pytest.FixtureRequest) -> Path:
    return getattr(model, request.param)


def test_keys(path: Path) -> None:
    fields = dict(package_reader(path).fields)
    with GgufFile(path) as file:
        counts = {"GGUF.version": 3, "GGUF.tensor_count": len(file.tensors), "GGUF.kv_count": len(file.metadata)}
        for key, count in counts.items():
            assert fields.pop(key).contents() == count
        assert list(fields) == list(file.metadata)
        for key, field in fields.items():
            assert [int(kind) for kind in field.types] == [kind for kind in file.types[key] if kind is not None], key
            assert field.contents() == file.metadata[key], key


def test_tensors(path: Path) -> None:
    tensors = package_reader(path).tensors
    with GgufFile(path) as file:
        assert [tensor.name for tensor in tensors] == list(file.tensors)
        for tensor in tensors:
            entry = file.tensors[tensor.name]
            assert tuple(map(int, tensor.shape)) == entry.dimensions, tensor.name
            assert int(tensor.tensor_type) == entry.ggml_type, tensor.name
            assert tensor.data_offset == file.data_start + entry.offset, tensor.name
            data = np.asarray(tensor.data).reshape(-1).view(np.uint8)
            assert data.size == tensor.n_bytes
            for start in range(0, data.size, PIECE_BYTES):
                piece = data[start : start + PIECE_BYTES]
                assert file.read(tensor.name, start, piece.size) == piece.tobytes(), tensor.name


def test_the_export_holds_the_same_numbers(model: Model) -> None:
    """As the package dequantises them: it knows nothing of how Kipp widens."""
    before, after = (package_reader(path).tensors for path in (model.artifact, model.export))
    num_widened = 0
    for old, new in zip(before, after, strict=True):
        assert old.name == new.name
        if old.tensor_type == new.tensor_type:
            assert old.data.tobytes() == new.data.tobytes(), old.name
            continue
        num_widened += 1
        assert (old.tensor_type, new.tensor_type) == (gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F32)
        widened = gguf.dequantize(old.data, old.tensor_type)
        assert widened.astype(np.float32).tobytes() == new.data.tobytes(), old.name
    assert num_widened == sum("norm" in tensor.name for tensor in before) > 0


def test_quantised_weights_are_the_same_numbers_to_the_package(model: Model) -> None:
    """Its decoders of Q8_0 and Q4_1, written by others, and Kipp's."""
    encodings = {encoding.ggml_type: encoding for encoding in (Q8_0, AFFINE4_GS32)}
    num_compared = 0
    for tensor in package_reader(model.artifact).tensors:
        encoding = encodings.get(int(tensor.tensor_type))
        if encoding is not None:
            expected = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(-1)
            found = encoding.decode(np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8))
            assert np.array_equal(found, expected), tensor.name
            num_compared += 1
    assert (num_compared > 0) == (model.scheme != "bf16")
    assert num_compared % 7 == 0
