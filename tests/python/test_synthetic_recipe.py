"""Recipe 1: docs/synthetic-twins.md once more in plain Python integers, compared with both implementations."""

from __future__ import annotations

import hashlib
import math
import struct
from decimal import Decimal, getcontext

import numpy as np
import pytest
from tiny_snapshots import TINY, TINY_BASE

from tools import synthetic_recipe as recipe
from tools.bf16 import first_non_finite, narrow_finite, widen
from tools.model_tensors import ModelTensor, TensorRole, model_tensors
from tools.synthetic_recipe import TwinWeights

MASK = (1 << 64) - 1
SEEDS = (0, 1, (1 << 64) - 1)


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16(value: float) -> int:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def word(seed: int, name: str, stream: int, index: int) -> int:
    golden = 0x9E3779B97F4A7C15
    name_hash = 0xCBF29CE484222325
    for byte in name.encode():
        name_hash = ((name_hash ^ byte) * 0x100000001B3) & MASK
    key = mix((mix(mix((seed + golden) & MASK) ^ name_hash) + stream * golden) & MASK)
    return mix((key + (index + 1) * golden) & MASK)


def row_factor(k: int) -> float:
    getcontext().prec = 40
    return float32(float(Decimal(2) ** (Decimal(k - 16) / 8)))


def expected_matrix_element(seed: int, tensor: ModelTensor, layers: int, index: int) -> int:
    z = word(seed, tensor.hf_name, 0, index)
    centred = sum((z >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
    if tensor.role in (TensorRole.EMBEDDING, TensorRole.HEAD):
        k = ((word(seed, tensor.hf_name, 1, index // tensor.columns) >> 32) * 33) >> 32
        a = float32(row_factor(k) * float32(0.1 * math.sqrt(3.0)))
    elif tensor.role == TensorRole.RESIDUAL_PROJECTION:
        a = float32(0.02 * math.sqrt(3.0) / math.sqrt(2.0 * layers))
    else:
        a = float32(0.02 * math.sqrt(3.0))
    return bf16(float32(centred * 2.0**-16 * a))


def expected_norm(seed: int, tensor: ModelTensor) -> list[int]:
    values = []
    for index in range(tensor.columns):
        u = ((word(seed, tensor.hf_name, 0, index) >> 48) - 32768) * 2.0**-15
        values.append(float32(float32(u * float32(0.1)) + 1.0))
    outliers: list[int] = []
    draw = 0
    while len(outliers) < 3:
        channel = ((word(seed, tensor.hf_name, 2, draw) >> 32) * tensor.columns) >> 32
        if channel not in outliers:
            outliers.append(channel)
            values[channel] = 2.0
        draw += 1
    if tensor.role == TensorRole.FINAL_NORM:
        values = [-v if word(seed, tensor.hf_name, 3, i) >> 63 else v for i, v in enumerate(values)]
    return [bf16(value) for value in values]


def tensors_by_role(checkpoint=TINY_BASE) -> dict[TensorRole, ModelTensor]:
    return {tensor.role: tensor for tensor in model_tensors(checkpoint, checkpoint.num_layers)}


def test_the_hashes_are_the_published_ones() -> None:
    assert recipe.mix(recipe.GOLDEN) == 0xE220A8397B1DCDAF  # splitmix64's first output for seed 0
    assert recipe.mix(2 * recipe.GOLDEN & MASK) == 0x6E789E6AA1B965F4
    assert recipe.fnv1a64("") == 0xCBF29CE484222325
    assert recipe.fnv1a64("a") == 0xAF63DC4C8601EC8C
    assert recipe.fnv1a64("foobar") == 0x85944171F73967E8


def test_the_table_of_row_factors_is_exact() -> None:
    assert [float(factor) for factor in recipe.ROW_FACTORS] == [row_factor(k) for k in range(33)]
    assert (recipe.ROW_FACTORS[0], recipe.ROW_FACTORS[16], recipe.ROW_FACTORS[32]) == (0.25, 1.0, 4.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("role", [role for role in TensorRole if "norm" not in role.value])
def test_matrices_follow_the_definition(role: TensorRole, seed: int) -> None:
    tensor = tensors_by_role()[role]
    first = max(0, tensor.rows // 2 - 20)
    bits = TwinWeights(seed, 2).rows(tensor, first, 40)
    expected = [expected_matrix_element(seed, tensor, 2, first * tensor.columns + i) for i in range(bits.size)]
    assert bits.tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("role", [TensorRole.LAYER_NORM, TensorRole.FINAL_NORM])
def test_norms_follow_the_definition(role: TensorRole, seed: int) -> None:
    tensor = tensors_by_role()[role]
    assert TwinWeights(seed, 2).rows(tensor, 0, 1).tolist() == expected_norm(seed, tensor)


def test_any_rows_alone_equal_the_same_rows_of_the_whole() -> None:
    weights = TwinWeights(5, 3)
    for tensor in (ModelTensor("w", "w", TensorRole.PROJECTION, (301, 333)),
                   ModelTensor("e", "e", TensorRole.EMBEDDING, (2011, 100))):
        whole = weights.rows(tensor, 0, tensor.rows).reshape(tensor.shape)
        for first, count in ((0, 1), (1, 97), (97, 99), (tensor.rows - 1, 1), (3, tensor.rows - 3)):
            part = weights.rows(tensor, first, count).reshape(count, -1)
            assert np.array_equal(part, whole[first : first + count])


def test_statistics_are_those_of_the_design() -> None:
    weights = TwinWeights(1, 28)
    projection = widen(weights.rows(ModelTensor("p", "p", TensorRole.PROJECTION, (1024, 1024)), 0, 1024))
    residual = widen(weights.rows(ModelTensor("o", "o", TensorRole.RESIDUAL_PROJECTION, (1024, 1024)), 0, 1024))
    assert projection.std() == pytest.approx(0.02, rel=0.005)
    assert abs(projection.mean()) < 1e-4
    assert residual.std() == pytest.approx(0.02 / math.sqrt(56), rel=0.005)
    embedding = ModelTensor("e", "e", TensorRole.EMBEDDING, (4096, 256))
    rows = widen(weights.rows(embedding, 0, 4096)).reshape(4096, 256)
    factors = rows.std(axis=1) / 0.1
    assert 0.2 < factors.min() < 0.3
    assert 3.4 < factors.max() < 4.6
    assert np.median(factors) == pytest.approx(1.0, rel=0.1)
    correlation = np.corrcoef(rows[:200])
    assert abs(correlation - np.eye(200)).max() < 0.35  # rows are independent


def test_different_seeds_tensors_and_streams_do_not_share_words() -> None:
    keys = {recipe.stream_key(seed, name, stream) for seed in (0, 1, 2) for name in ("a", "b") for stream in range(4)}
    assert len(keys) == 24


def test_hashes_of_whole_tensors() -> None:
    """These bytes are the contract between numpy, torch and C++: they never change within recipe 1."""
    digests = {}
    for role, tensor in tensors_by_role(TINY_BASE).items():
        bits = TwinWeights(1, 2).rows(tensor, 0, tensor.rows)
        digests[role.value] = hashlib.sha256(bits.astype("<u2").tobytes()).hexdigest()[:16]
    assert digests == {
        "embedding": "775aead269be5650",
        "layer_norm": "45d776044c55190f",
        "projection": "59b492619e67c317",
        "residual_projection": "ce631d633c8b6752",
        "final_norm": "5ada331c49f06f25",
        "head": "91d343b11f31b9d9",
    }


def test_bf16_rounding_is_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -1.00390625, 0.0, 3.38e38, 1e-40], dtype=np.float32)
    assert narrow_finite(values.copy()).tolist() == [bf16(float(value)) for value in values]
    assert narrow_finite(np.array([1.00390625, 1.01171875], np.float32)).tolist() == [0x3F80, 0x3F82]
    assert first_non_finite(np.array([0x3F80, 0x7F7F, 0xFF80], np.uint16)) == 2
    assert first_non_finite(np.array([0x3F80, 0x7F7F, 0xFF7F], np.uint16)) == -1


@pytest.mark.torch
@pytest.mark.parametrize("seed", SEEDS)
def test_torch_makes_the_same_bytes(seed: int) -> None:
    from tools.synthetic_torch import TorchTwinWeights

    reference, torch_weights = TwinWeights(seed, 2), TorchTwinWeights(seed, 2, "cpu")
    for tensor in tensors_by_role().values():
        first, count = tensor.rows // 3, min(tensor.rows - tensor.rows // 3, 5000)
        if tensor.rows == 1:
            first, count = 0, 1
        assert np.array_equal(torch_weights.rows(tensor, first, count), reference.rows(tensor, first, count)), tensor


@pytest.mark.torch
def test_torch_pieces_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools import synthetic_torch

    monkeypatch.setattr(synthetic_torch, "MAX_WORDS", 1000)
    tensor = tensors_by_role(TINY)[TensorRole.EMBEDDING]
    torch_bits = synthetic_torch.TorchTwinWeights(3, 3, "cpu").rows(tensor, 17, 400)
    assert np.array_equal(torch_bits, TwinWeights(3, 3).rows(tensor, 17, 400))
