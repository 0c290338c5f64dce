"""The encoders in torch give the bytes that they give in numpy, block by block; on a GPU, too, where there is one."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import block_quantization as bq
from tools.bf16 import host_bits, narrow_finite
from tools.checkpoints import find_checkpoint
from tools.model_tensors import model_tensors

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

ENCODERS = {"q8_0": bq.encode_q8_0, "affine4": bq.encode_affine4, "affine4_min_max": bq.encode_affine4_min_max}
SIGN_AND_FRACTION = np.uint16(0x807F)
LARGEST_EXPONENT = 142  # 2^15: within ±65504 whatever the fraction
FINITE_EXPONENTS = 255


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


def on(device: str, bits: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(device)


def bits_of(values: object) -> np.ndarray:
    return narrow_finite(np.array(values, dtype=np.float32).reshape(-1, 32).copy())


def with_exponents(generator: np.random.Generator, exponents: np.ndarray) -> np.ndarray:
    """bf16 bits of random sign and fraction."""
    bits = generator.integers(0, 1 << 16, exponents.shape, dtype=np.uint16) & SIGN_AND_FRACTION
    return bits | (exponents.astype(np.uint16) << np.uint16(7))


def result(scheme: str, bits: np.ndarray | torch.Tensor) -> bytes | tuple[int, float, str]:
    """The bytes, or what the error says."""
    try:
        data = ENCODERS[scheme](bits)
    except bq.UnencodableBlockError as error:
        return error.block, error.weight, error.field
    assert isinstance(data, np.ndarray)
    return data.tobytes()


def require_equal(device: str, scheme: str, bits: np.ndarray) -> None:
    expected, found = result(scheme, bits), result(scheme, on(device, bits))
    assert type(found) is type(expected)
    if found != expected and isinstance(expected, bytes):
        size = len(expected) // (bits.size // 32)
        block = next(at for at in range(0, len(expected), size) if found[at : at + size] != expected[at : at + size])
        row = bits.reshape(-1, 32)[block // size]
        pytest.fail(f"block {block // size}, weights {row.tolist()}: {found[block : block + size].hex()}, "
                    f"not {expected[block : block + size].hex()}")
    assert found == expected


def few_distinct(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Mostly one number in a block, that or a zero of its sign."""
    bits = with_exponents(generator, generator.integers(0, LARGEST_EXPONENT, shape))
    common = bits[:, :1] & generator.choice(np.array([0x8000, 0xFFFF], np.uint16), (len(bits), 1))
    return np.where(generator.random(shape) < 0.8, common, bits)


RANDOM_BLOCKS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda generator, shape: bits_of(generator.standard_normal(shape) * 0.02),
    "outliers": lambda generator, shape: bits_of(
        generator.standard_normal(shape) * np.where(generator.random(shape) < 0.05, 40, 1)),
    "offset": lambda generator, shape: bits_of(
        generator.standard_normal((shape[0], 1)) * 100 + generator.standard_normal(shape)),
    "any exponent": lambda generator, shape: with_exponents(
        generator, generator.integers(0, LARGEST_EXPONENT, shape)),
    "one exponent": lambda generator, shape: with_exponents(
        generator, np.broadcast_to(generator.integers(0, LARGEST_EXPONENT, (shape[0], 1)), shape)),
    "subnormal in fp16": lambda generator, shape: with_exponents(
        generator, 95 + generator.integers(0, 22, (shape[0], 1)) + generator.integers(0, 3, shape)),
    "subnormal in fp32": lambda generator, shape: with_exponents(generator, generator.integers(0, 3, shape)),
    "few distinct": few_distinct,
}


@pytest.mark.parametrize("scheme", ENCODERS)
@pytest.mark.parametrize("name", RANDOM_BLOCKS)
def test_random_blocks(device: str, name: str, scheme: str) -> None:
    require_equal(device, scheme, RANDOM_BLOCKS[name](np.random.default_rng(7), (12000, 32)))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(ENCODERS)), st.integers(0, FINITE_EXPONENTS - 1), st.integers(0, 40), st.data())
def test_chosen_blocks(device: str, scheme: str, first_exponent: int, num_exponents: int, data: st.DataObject) -> None:
    """Whole bf16 numbers, near each other or far, often equal; such that cannot be encoded among them."""
    last = min(first_exponent + num_exponents, FINITE_EXPONENTS - 1)
    magnitude = st.integers(first_exponent << 7, (last << 7) + 127)
    weight = st.one_of(magnitude, magnitude.map(lambda bits: bits | 0x8000), st.sampled_from([0, 0x8000]))
    distinct = data.draw(st.lists(weight, min_size=1, max_size=8))
    block = st.lists(st.one_of(weight, st.sampled_from(distinct)), min_size=32, max_size=32)
    rows = data.draw(st.lists(block, min_size=1, max_size=3))
    require_equal(device, scheme, np.array(rows, dtype=np.uint16))


@pytest.mark.parametrize("scheme", ENCODERS)
@pytest.mark.parametrize("block", [
    [0.0] * 32, [-0.0] * 32, [0.0, -0.0] * 16, [-0.0] * 31 + [0.0], [1.0] * 32, [-0.037109375] * 32, [65280.0] * 32,
    [-65280.0, 65280.0] * 16, [2.0**-133] * 32, [-(2.0**-133), 0.0] * 16, [2.0**-24] * 32, [2.0**-25, 0.0] * 16,
    [0.0] * 31 + [8290304.0], [-65280.0] + [0.0] * 31, [0.0] * 31 + [909312.0], np.linspace(-1, 1, 32) * 65280.0,
    np.linspace(-1, 1, 32) * 2.0**-20, [0.01] * 31 + [3.0],
])
def test_special_blocks(device: str, scheme: str, block: list[float]) -> None:
    require_equal(device, scheme, bits_of(block))


@pytest.mark.parametrize("scheme", ENCODERS)
@pytest.mark.parametrize("weights", [
    {70: 8.5e6}, {31: -3.0e38}, {33: -65536.0}, {5: -65000.0, 6: 1e6}, {2: 3.0e38}, {2: -3.0e38, 3: 3.0e38},
    {40: 3.0e38, 41: -3.0e38, 90: 3.0e38},
])
def test_unencodable_blocks(device: str, scheme: str, weights: dict[int, float]) -> None:
    values = np.zeros(96, dtype=np.float32)
    for index, value in weights.items():
        values[index] = value
    require_equal(device, scheme, bits_of(values))


def test_every_scale_of_q8_0(device: str) -> None:
    """Every bf16 number up to the largest that it can scale, as the largest of a block: each neighbour of each fp16."""
    largest = np.arange(int(bits_of([8290304.0] * 32)[0, 0]) + 1, dtype=np.uint16)
    bits = RANDOM_BLOCKS["one exponent"](np.random.default_rng(3), (len(largest), 32))
    exponents = np.maximum(largest.astype(np.int32) - (1 << 7), 0)[:, None] & 0x7F80
    bits = (bits & SIGN_AND_FRACTION) | exponents.astype(np.uint16)
    bits[:, 5] = largest
    require_equal(device, "q8_0", bits)


def test_errors_and_sums_have_the_same_bits(device: str) -> None:
    """They decide between candidates: a last bit of theirs shows in the bytes of one block in millions only."""
    import torch

    weights, decoded = (np.random.default_rng(seed).standard_normal((32, 5000)).astype(np.float32) for seed in (1, 2))
    on_device = [torch.from_numpy(values).to(device) for values in (decoded, weights)]
    error = bq._squared_error(*on_device)
    assert error.dtype == torch.float64
    assert error.cpu().numpy().tobytes() == bq._squared_error(decoded, weights).tobytes()
    assert bq._sum(on_device[0]).cpu().numpy().tobytes() == bq._sum(decoded).tobytes()


@pytest.mark.parametrize("scheme", ENCODERS)
def test_neither_chunks_nor_threads_matter(device: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = RANDOM_BLOCKS["outliers"](np.random.default_rng(1), (1000, 32))
    expected = ENCODERS[scheme](bits).tobytes()
    monkeypatch.setattr(bq, "TORCH_CHUNK_BLOCKS", 99)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(ENCODERS[scheme](on(device, bits)).tobytes()))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
    bits[520, 3] = 0x7F00
    require_equal(device, scheme, bits)  # a later chunk names the block of the whole


def test_rows_are_whole_blocks(device: str) -> None:
    with pytest.raises(ValueError, match="48 weights"):
        bq.encode_affine4(on(device, np.zeros((2, 48), dtype=np.uint16)))


def test_the_bytes_of_a_twins_tensor(device: str) -> None:
    """The hash that the numpy encoder is held to, of weights that never left the device."""
    from tools.synthetic_torch import TorchTwinWeights

    checkpoint = find_checkpoint("qwen3-0.6b")
    tensor = next(each for each in model_tensors(checkpoint, 1) if each.gguf_name == "blk.0.attn_q.weight")
    rows = TorchTwinWeights(1, 1, device).device_rows(tensor, 0, 256)
    assert rows.device.type == device
    found = hashlib.sha256(bq.encode_affine4(rows).tobytes()).hexdigest()
    assert found == "9c5cec44f80584d621b6e7280757c3f82ca9031f2890a9afa3675beb4ec2ed56"


def test_host_bits_are_the_same_bits(device: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(host_bits(on(device, bits)), bits)  # NaNs of every kind among them
