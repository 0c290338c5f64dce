"""Q8_0 and AFFINE4_GS32 in numpy: encoders from bf16 bits, and the decoders that say what the encoded weights are.

A block is 32 consecutive weights of a row; its layout is GGML's (docs/artifact.md), the choices of the encoders are in
docs/decisions/0008. The same bytes on every machine: elementwise IEEE operations in FP32 and FP64 only, and sums over a
block in the fixed tree of `_sum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.bf16 import widen

GROUP = 32  # weights in a block
Q8_0_BYTES = 34  # fp16 scale, 32 int8
AFFINE4_BYTES = 20  # fp16 scale, fp16 bias, 32 nibbles: the low ones are weights 0 to 15, the high ones 16 to 31
Q8_0_LEVELS = np.float32(127)  # -128 is never used
AFFINE4_LEVELS = np.float32(15)
FP16_MAX = np.float32(65504)

# A chunk of blocks lies as [32][CHUNK_BLOCKS]: 512 KiB in FP32, so that its scratch stays in the cache, and an
# operation is long enough for other threads to run meanwhile.
CHUNK_BLOCKS = 4096

# Where the search for an AFFINE4 block begins: the range of its weights, and that less a part of it at one end or both
# (outliers may be worth clipping). Each beginning is improved by REFITS rounds of assignment and least squares.
AFFINE4_CUTS = tuple((np.float32(low), np.float32(high)) for low in (0.0, 0.06) for high in (0.0, 0.06))
REFITS = 3


class UnencodableBlockError(Exception):
    """A block whose scale or bias fp16 cannot hold. `block` counts from the first weight of the encoded rows."""

    def __init__(self, block: int, weight: float, field: str) -> None:
        super().__init__(f"block {block}: the {field} for a weight of {weight:g} exceeds fp16")
        self.block = block
        self.weight = weight
        self.field = field


def encode_q8_0(bits: np.ndarray) -> np.ndarray:
    """Bytes of the blocks of bf16 bits [rows][columns] (columns a multiple of 32), finite: uint8 [blocks × 34]."""
    out = np.empty((bits.size // GROUP, Q8_0_BYTES), dtype=np.uint8)
    for first, weights in _chunks(bits):
        scale, quants = _fit_q8_0(weights, first)
        rows = out[first : first + scale.size]
        rows[:, :2] = _fp16_bytes(scale)
        rows[:, 2:] = quants.astype(np.int8).T.view(np.uint8)
    return out.reshape(-1)


def encode_affine4(bits: np.ndarray) -> np.ndarray:
    """The same for AFFINE4_GS32: uint8 [blocks × 20]. Lossy."""
    return _encode_affine4(bits, _fit_affine4)


def encode_affine4_min_max(bits: np.ndarray) -> np.ndarray:
    """The plain way, for comparison: scale and bias from the smallest and the largest weight."""
    return _encode_affine4(bits, _fit_affine4_min_max)


def decode_q8_0(data: np.ndarray) -> np.ndarray:
    """The weights in FP32, scale · q, which is exact: 11 bits times 7."""
    blocks = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1, Q8_0_BYTES)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].view(np.int8).astype(np.float32) * scale).reshape(-1)


def decode_affine4(data: np.ndarray) -> np.ndarray:
    """The weights in FP32: scale · q + bias, rounded once (the product, 11 bits times 4, is exact)."""
    blocks = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1, AFFINE4_BYTES)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    bias = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    nibbles = blocks[:, 4:]
    quants = np.concatenate((nibbles & 15, nibbles >> 4), axis=1).astype(np.float32)
    return (quants * scale + bias).reshape(-1)


Affine4 = tuple[np.ndarray, np.ndarray, np.ndarray]  # scale [n], bias [n] (FP32 values of fp16), quants [32][n]


def _encode_affine4(bits: np.ndarray, fit: Callable[[np.ndarray, int], Affine4]) -> np.ndarray:
    out = np.empty((bits.size // GROUP, AFFINE4_BYTES), dtype=np.uint8)
    for first, weights in _chunks(bits):
        scale, bias, quants = fit(weights, first)
        nibbles = quants.astype(np.uint8)
        rows = out[first : first + scale.size]
        rows[:, :2] = _fp16_bytes(scale)
        rows[:, 2:4] = _fp16_bytes(bias)
        rows[:, 4:] = (nibbles[: GROUP // 2] | nibbles[GROUP // 2 :] << 4).T
    return out.reshape(-1)


def _chunks(bits: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first block, FP32 weights [32][n]): a block is a column, so that every operation runs over blocks."""
    if bits.shape[-1] % GROUP:
        raise ValueError(f"a row of {bits.shape[-1]} weights is not a whole number of blocks of {GROUP}")
    blocks = bits.reshape(-1, GROUP)
    for first in range(0, len(blocks), CHUNK_BLOCKS):
        yield first, np.ascontiguousarray(widen(blocks[first : first + CHUNK_BLOCKS]).T)


def _sum(values: np.ndarray) -> np.ndarray:
    """[32][n] -> [n]: halves added to each other five times, so that the order never depends on the machine."""
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values[0]


def _squared_error(decoded: np.ndarray, weights: np.ndarray) -> np.ndarray:
    error = decoded.astype(np.float64) - weights
    error *= error
    return _sum(error)


def _round_to_fp16(values: np.ndarray) -> np.ndarray:
    """To nearest even; beyond the range, the largest: a candidate that is off is judged by its error."""
    return np.clip(values, -FP16_MAX, FP16_MAX).astype(np.float16).astype(np.float32)


def _fp16_bytes(values: np.ndarray) -> np.ndarray:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _divisor(scale: np.ndarray) -> np.ndarray:
    """A scale to divide by. Where it is 0 every quant stands for the same weight, and 0 is stored."""
    return np.where(scale == 0, np.float32(1), scale)


def _require(in_range: np.ndarray, weights: np.ndarray, first: int, field: str) -> None:
    if not in_range.all():
        index = int(np.argmin(in_range))
        column = weights[:, index]
        raise UnencodableBlockError(first + index, float(column[np.argmax(np.abs(column))]), field)


def _fit_q8_0(weights: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale [n] and quants [32][n]: of the two fp16 numbers around max|w| / 127 the one with the smaller error.

    The upper one reaches the largest weight, the lower one clips it to ±127 but is finer for all others.
    """
    largest = np.abs(weights).max(axis=0)
    _require(largest <= FP16_MAX * Q8_0_LEVELS, weights, first, "scale")
    wanted = largest / Q8_0_LEVELS
    nearest = wanted.astype(np.float16)
    towards = np.where(nearest.astype(np.float32) < wanted, np.float16(FP16_MAX), np.float16(0))
    scale, quants, error = None, None, None
    for candidate in (nearest, np.nextafter(nearest, towards)):
        wide = candidate.astype(np.float32)
        levels = np.clip(np.rint(weights / _divisor(wide)), -Q8_0_LEVELS, Q8_0_LEVELS)
        found = _squared_error(levels * wide, weights)
        if scale is None:
            scale, quants, error = wide, levels, found
        else:
            better = found < error
            scale, quants = np.where(better, wide, scale), np.where(better, levels, quants)
    return scale, quants


def _assign(weights: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The nearest quant of each weight."""
    quants = weights - bias
    quants /= _divisor(scale)
    np.rint(quants, out=quants)
    return np.clip(quants, 0, AFFINE4_LEVELS, out=quants)


def _least_squares(weights: np.ndarray, quants: np.ndarray, scale: np.ndarray,
                   bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale and bias that fit these quants best; as given where all quants are the same."""
    sum_q, sum_w = _sum(quants), _sum(weights)
    sum_qq, sum_qw = _sum(quants * quants), _sum(quants * weights)
    spread = GROUP * sum_qq - sum_q * sum_q
    is_spread = spread > 0
    fitted = (GROUP * sum_qw - sum_q * sum_w) / np.where(is_spread, spread, np.float32(1))
    fitted_bias = (sum_w - fitted * sum_q) / np.float32(GROUP)
    return np.where(is_spread, fitted, scale), np.where(is_spread, fitted_bias, bias)


def _fit_affine4_min_max(weights: np.ndarray, first: int) -> Affine4:
    low, high = weights.min(axis=0), weights.max(axis=0)
    _require(np.abs(low) <= FP16_MAX, weights, first, "bias")
    scale = (high - low) / AFFINE4_LEVELS
    _require(scale <= FP16_MAX, weights, first, "scale")
    scale, bias = _round_to_fp16(scale), _stored_bias(low)
    return scale, bias, _quants(weights, scale, bias)


def _fit_affine4(weights: np.ndarray, first: int) -> Affine4:
    """The best of the plain fit and of those found from AFFINE4_CUTS, all judged as they are stored."""
    scale, bias, quants = _fit_affine4_min_max(weights, first)
    error = _squared_error(quants * scale + bias, weights)
    low, high = weights.min(axis=0), weights.max(axis=0)
    width = high - low
    for cut_low, cut_high in AFFINE4_CUTS:
        wanted_bias = low + cut_low * width
        wanted_scale = (high - cut_high * width - wanted_bias) / AFFINE4_LEVELS
        for _ in range(REFITS):
            levels = _assign(weights, wanted_scale, wanted_bias)
            wanted_scale, wanted_bias = _least_squares(weights, levels, wanted_scale, wanted_bias)
        new_scale, new_bias = _stored_fit(weights, wanted_scale, wanted_bias)
        new_quants = _quants(weights, new_scale, new_bias)
        new_error = _squared_error(new_quants * new_scale + new_bias, weights)
        better = new_error < error
        scale, bias = np.where(better, new_scale, scale), np.where(better, new_bias, bias)
        quants, error = np.where(better, new_quants, quants), np.where(better, new_error, error)
    return scale, bias, quants


def _stored_fit(weights: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale in fp16, and the bias that fits it best, in fp16, too: of a scale of 0, the mean of the weights."""
    stored = _round_to_fp16(scale)
    quants = _quants(weights, stored, bias)
    return stored, _stored_bias((_sum(weights) - stored * _sum(quants)) / np.float32(GROUP))


def _stored_bias(bias: np.ndarray) -> np.ndarray:
    return _round_to_fp16(bias) + np.float32(0)  # the sum turns -0 to +0


def _quants(weights: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """As they are stored: 0 where the scale is."""
    quants = _assign(weights, scale, bias)
    quants[:, scale == 0] = 0
    return quants
