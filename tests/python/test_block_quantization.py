"""Q8_0 and AFFINE4_GS32: layouts against their definition, errors against what the plain ways reach, special blocks."""

from __future__ import annotations

import concurrent.futures
import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import block_quantization as bq
from tools.bf16 import narrow_finite, widen
from tools.checkpoints import find_checkpoint
from tools.model_tensors import model_tensors
from tools.synthetic_recipe import TwinWeights

ENCODERS = {"q8_0": bq.encode_q8_0, "affine4": bq.encode_affine4}
DECODERS = {"q8_0": bq.decode_q8_0, "affine4": bq.decode_affine4}
FP16_MAX = 65504.0


def bits_of(values: object) -> np.ndarray:
    """bf16 bits of blocks, rounded; [n][32]."""
    return narrow_finite(np.array(values, dtype=np.float32).reshape(-1, 32).copy())


def errors(weights: np.ndarray, decoded: np.ndarray) -> np.ndarray:
    """Squared error of each block, in double."""
    difference = decoded.reshape(-1, 32).astype(np.float64) - weights.reshape(-1, 32)
    return np.sum(difference * difference, axis=1)


def fp16(data: bytes) -> float:
    return struct.unpack("<e", data)[0]


def defined_q8_0(data: bytes) -> list[float]:
    return [fp16(data[:2]) * quant for quant in struct.unpack("<32b", data[2:])]


def defined_affine4(data: bytes) -> list[float]:
    scale, bias = fp16(data[:2]), fp16(data[2:4])
    quants = [byte & 15 for byte in data[4:]] + [byte >> 4 for byte in data[4:]]
    return [float(np.float32(scale * quant + bias)) for quant in quants]  # one rounding of the exact sum


# Blocks like those of real weights, and such of any size that fp16 can scale.
def blocks(largest: float) -> st.SearchStrategy[np.ndarray]:
    weight = st.floats(-1.0, 1.0, width=32)
    spread = st.lists(weight, min_size=32, max_size=32)
    scale = st.one_of(st.floats(2.0**-10, 1.0), st.floats(0.0, 2.0**-20), st.floats(1.0, largest))
    offset = st.one_of(st.just(0.0), weight)
    return st.builds(lambda values, by, shift: bits_of([by * (value + shift) / 2 for value in values]),
                     spread, scale, offset)


@settings(deadline=None)
@given(st.binary(min_size=68, max_size=68))
def test_q8_0_decodes_as_defined(data: bytes) -> None:
    if all(np.isfinite(fp16(data[start : start + 2])) for start in (0, 34)):
        expected = defined_q8_0(data[:34]) + defined_q8_0(data[34:])
        assert bq.decode_q8_0(np.frombuffer(data, np.uint8)).tolist() == expected


@settings(deadline=None)
@given(st.binary(min_size=40, max_size=40))
def test_affine4_decodes_as_defined(data: bytes) -> None:
    if all(np.isfinite(fp16(data[start : start + 2])) for start in (0, 2, 20, 22)):
        expected = defined_affine4(data[:20]) + defined_affine4(data[20:])
        assert bq.decode_affine4(np.frombuffer(data, np.uint8)).tolist() == expected


def test_layouts() -> None:
    """Written out: a block that each scheme holds exactly."""
    ramp = bits_of([0.5 * (i % 16) - 2.0 for i in range(32)])
    assert bytes(bq.encode_affine4(ramp)) == struct.pack("<ee", 0.5, -2.0) + bytes(i | i << 4 for i in range(16))
    steps = [-127, 127, *range(-15, 15)]
    expected = struct.pack("<e32b", 0.25, *steps)
    assert bytes(bq.encode_q8_0(bits_of([0.25 * step for step in steps]))) == expected


@settings(max_examples=300, deadline=None)
@given(blocks(127.0 * FP16_MAX / 2))
def test_q8_0_is_the_better_of_the_two_scales_around(bits: np.ndarray) -> None:
    weights = widen(bits)
    data = bq.encode_q8_0(bits)
    found = errors(weights, bq.decode_q8_0(data))[0]
    quants = data[2:].view(np.int8).astype(int)
    assert np.abs(quants).max() <= 127
    wanted = np.abs(weights).max() / np.float32(127)
    nearest = np.float16(wanted)
    for scale in (nearest, np.nextafter(nearest, np.float16(0)), np.nextafter(nearest, np.float16(FP16_MAX))):
        wide = float(scale)
        if not (np.nextafter(scale, np.float16(0)) < wanted < np.nextafter(scale, np.float16(FP16_MAX))):
            continue  # not next to the wanted one
        levels = np.clip(np.rint(weights.astype(np.float64) / (wide or 1.0)), -127, 127)
        # A quotient in FP32 may round to a half that it is not: then both neighbours are equally good, to 2^-22.
        assert found <= errors(weights, (levels * wide).astype(np.float32))[0] * (1 + 2.0**-20) + 1e-300
    scale = fp16(bytes(data[:2]))
    unclipped = np.abs(weights[0].astype(np.float64)) <= 127 * scale
    decoded = bq.decode_q8_0(data)
    assert np.all(np.abs(decoded - weights[0])[unclipped] <= 0.5 * scale * (1 + 2.0**-15))


@settings(max_examples=300, deadline=None)
@given(blocks(FP16_MAX))
def test_affine4_is_never_worse_than_min_and_max(bits: np.ndarray) -> None:
    weights = widen(bits)
    best, plain = (bq.decode_affine4(encode(bits)) for encode in (bq.encode_affine4, bq.encode_affine4_min_max))
    assert errors(weights, best)[0] <= errors(weights, plain)[0]


@settings(max_examples=100, deadline=None)
@given(blocks(FP16_MAX))
def test_what_is_stored_is_encoded_as_it_is(bits: np.ndarray) -> None:
    """A block of 16 levels that BF16 holds, the first and the last among them, loses nothing."""
    data = bytearray(bytes(bq.encode_affine4(bits)))
    data[:5] = struct.pack("<eeB", 2.0**-5, -0.25, 15 << 4)
    weights = bq.decode_affine4(np.frombuffer(bytes(data), np.uint8))
    assert np.array_equal(bq.decode_affine4(bq.encode_affine4(bits_of(weights))), weights)


def test_least_squares_beats_min_and_max_on_a_twins_weights() -> None:
    checkpoint = find_checkpoint("qwen3-0.6b")
    tensor = next(each for each in model_tensors(checkpoint, 1) if each.gguf_name == "blk.0.ffn_down.weight")
    bits = TwinWeights(1, 1).rows(tensor, 0, 64).reshape(64, -1)
    plain, best = (errors(widen(bits), bq.decode_affine4(encode(bits))).sum()
                   for encode in (bq.encode_affine4_min_max, bq.encode_affine4))
    assert best < 0.82 * plain


@pytest.mark.parametrize(("scheme", "digest"), [
    ("q8_0", "86ab84e121f9585e3d6f56a122839d7ccac1dbb5ca3a4fe1edf20840ca3beacd"),
    ("affine4", "9c5cec44f80584d621b6e7280757c3f82ca9031f2890a9afa3675beb4ec2ed56"),
])
def test_the_bytes_are_the_same_on_every_machine(scheme: str, digest: str) -> None:
    checkpoint = find_checkpoint("qwen3-0.6b")
    tensor = next(each for each in model_tensors(checkpoint, 1) if each.gguf_name == "blk.0.attn_q.weight")
    bits = TwinWeights(1, 1).rows(tensor, 0, 256).reshape(256, -1)
    data = ENCODERS[scheme](bits)
    assert hashlib.sha256(data.tobytes()).hexdigest() == digest
    pieces = [bits[:1], bits[1:130], bits[130:]]  # neither cuts nor threads matter
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert b"".join(piece.tobytes() for piece in pool.map(ENCODERS[scheme], pieces)) == data.tobytes()


@pytest.mark.parametrize("scheme", ENCODERS)
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zeros_are_zeros(scheme: str, value: float) -> None:
    data = ENCODERS[scheme](bits_of([value] * 32))
    assert not data.any()  # scale, bias and quants: a negative zero becomes a positive one
    decoded = DECODERS[scheme](data)
    assert not decoded.any()
    assert not np.signbit(decoded).any()


@pytest.mark.parametrize("value", [1.0, -0.037109375, 3.0517578125e-05, 65280.0, -65280.0])
def test_equal_weights_keep_their_value_in_affine4(value: float) -> None:
    """The bias alone holds a BF16 number within fp16's range exactly."""
    data = bq.encode_affine4(bits_of([value] * 32))
    assert bytes(data) == struct.pack("<ee", 0.0, value) + bytes(16)
    assert (bq.decode_affine4(data) == np.float32(value)).all()


@pytest.mark.parametrize("value", [1.0, -0.037109375])
def test_equal_weights_in_q8_0(value: float) -> None:
    data = bq.encode_q8_0(bits_of([value] * 32))
    assert (data[2:].view(np.int8) == (127 if value > 0 else -127)).all()
    assert np.allclose(bq.decode_q8_0(data), value, rtol=2.0**-11, atol=0)


@pytest.mark.parametrize("scheme", ENCODERS)
@pytest.mark.parametrize("largest", [2.0**-15, 2.0**-20, 2.0**-24, 2.0**-26, 2.0**-40, 2.0**-126, 2.0**-133])
def test_tiny_weights_are_as_good_as_fp16_allows(scheme: str, largest: float) -> None:
    """Their scale is subnormal or zero in fp16: steps of 2^-24, and in no case worse than zeros."""
    weights = widen(bits_of(np.linspace(-1, 1, 32) * largest))
    data = ENCODERS[scheme](bits_of(weights))
    found = errors(weights, DECODERS[scheme](data))[0]
    assert found <= errors(weights, np.zeros(32))[0]
    levels = 127 if scheme == "q8_0" else 15
    off_by = min(levels * 2.0**-25, largest) + 2.0**-25  # by the rounding of scale, at the last level, and of bias
    assert found <= 32 * (largest / levels + off_by) ** 2
    if largest < 2.0**-25:
        assert not data.any()


@pytest.mark.parametrize(("scheme", "weights", "block", "shown", "field"), [
    ("q8_0", {70: 127 * FP16_MAX * 1.01}, 2, "8.38", "scale"),
    ("q8_0", {31: -3.0e38}, 0, "-3", "scale"),
    ("affine4", {33: -65536.0}, 1, "-65536", "bias"),
    ("affine4", {5: -65000.0, 6: 1e6}, 0, "999", "scale"),
    ("affine4", {2: 3.0e38}, 0, "3", "scale"),
    ("affine4", {2: -3.0e38, 3: 3.0e38}, 0, "-3", "bias"),
])
def test_what_fp16_cannot_scale_is_refused_by_block_and_weight(scheme: str, weights: dict[int, float], block: int,
                                                               shown: str, field: str) -> None:
    values = np.zeros(96, dtype=np.float32)
    for index, value in weights.items():
        values[index] = value
    with pytest.raises(bq.UnencodableBlockError, match=f"block {block}: the {field} for a weight of {shown}") as caught:
        ENCODERS[scheme](bits_of(values))
    assert caught.value.block == block


@pytest.mark.parametrize("scheme", ENCODERS)
def test_the_largest_weights_that_fit(scheme: str) -> None:
    largest = 8290304.0 if scheme == "q8_0" else 65280.0  # the last BF16 numbers below 127 · 65504, and 65504
    weights = widen(bits_of(np.linspace(-1, 1, 32) * largest))
    decoded = DECODERS[scheme](ENCODERS[scheme](bits_of(weights)))
    assert np.abs(decoded - weights).max() <= largest / (127 if scheme == "q8_0" else 13)


@pytest.mark.parametrize("scheme", ENCODERS)
def test_rows_are_whole_blocks(scheme: str) -> None:
    with pytest.raises(ValueError, match="48 weights"):
        ENCODERS[scheme](np.zeros((2, 48), dtype=np.uint16))
