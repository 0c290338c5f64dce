"""Q8_0 and AFFINE4_GS32: encoders from bf16 bits, and the decoders that say what the encoded weights are.

A block is 32 consecutive weights of a row; its layout is GGML's (docs/artifact.md), the choices of the encoders are in
docs/decisions/0008. The same bytes on every machine: elementwise IEEE operations in FP32 and FP64 only, and sums over a
block in the fixed tree of `_sum`. The encoders work where the weights are: in numpy or, on any device, in torch.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tools.bf16 import widen

if TYPE_CHECKING:
    from tools.bf16 import Array

GROUP = 32  # weights in a block
Q8_0_BYTES = 34  # fp16 scale, 32 int8
AFFINE4_BYTES = 20  # fp16 scale, fp16 bias, 32 nibbles: the low ones are weights 0 to 15, the high ones 16 to 31
# Python's numbers take the type of the array they meet, in numpy and in torch.
Q8_0_LEVELS = 127.0  # -128 is never used
AFFINE4_LEVELS = 15.0
FP16_MAX = 65504.0

# A chunk of blocks lies as [32][CHUNK_BLOCKS]: 512 KiB in FP32, so that its scratch stays in the cache, and an
# operation is long enough for other threads to run meanwhile.
CHUNK_BLOCKS = 4096
# In torch an operation is worth its launch only when it is large. Scratch is below 1.5 KiB a block: 1.5 GiB.
TORCH_CHUNK_BLOCKS = 1 << 20
_torch_lock = threading.Lock()  # pieces come from several threads; one at a time bounds the scratch

# Where the search for an AFFINE4 block begins: the range of its weights, and that less a part of it at one end or both
# (outliers may be worth clipping). Each beginning is improved by REFITS rounds of assignment and least squares.
AFFINE4_CUTS = tuple((low, high) for low in (0.0, 0.06) for high in (0.0, 0.06))
REFITS = 3

Affine4 = tuple["Array", "Array", "Array"]  # scale [n], bias [n] (FP32 values of fp16), quants [32][n]


class UnencodableBlockError(Exception):
    """A block whose scale or bias fp16 cannot hold. `block` counts from the first weight of the encoded rows."""

    def __init__(self, block: int, weight: float, field: str) -> None:
        super().__init__(f"block {block}: the {field} for a weight of {weight:g} exceeds fp16")
        self.block = block
        self.weight = weight
        self.field = field


def encode_q8_0(bits: Array) -> np.ndarray:
    """Bytes of the blocks of bf16 bits [rows][columns] (columns a multiple of 32), finite: uint8 [blocks × 34].

    The bits are uint16 in numpy or bfloat16 in torch; the bytes are the same, and in host memory.
    """
    return _encode(bits, _q8_0_rows)


def encode_affine4(bits: Array) -> np.ndarray:
    """The same for AFFINE4_GS32: uint8 [blocks × 20]. Lossy."""
    return _encode(bits, lambda weights, first: _affine4_rows(*_fit_affine4(weights, first)))


def encode_affine4_min_max(bits: Array) -> np.ndarray:
    """The plain way, for comparison: scale and bias from the smallest and the largest weight."""
    return _encode(bits, lambda weights, first: _affine4_rows(*_fit_affine4_min_max(weights, first)))


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


def _encode(bits: Array, encode_chunk: Callable[[Array, int], Array]) -> np.ndarray:
    """encode_chunk: FP32 weights [32][n], the first being of this block -> stored blocks, uint8 [n][bytes]."""
    if bits.shape[-1] % GROUP:
        raise ValueError(f"a row of {bits.shape[-1]} weights is not a whole number of blocks of {GROUP}")
    blocks = bits.reshape(-1, GROUP)
    if isinstance(bits, np.ndarray):
        return np.concatenate([encode_chunk(*chunk) for chunk in _chunks(blocks, CHUNK_BLOCKS)], axis=None)
    with _torch_lock:
        rows = [encode_chunk(*chunk).cpu().numpy() for chunk in _chunks(blocks, TORCH_CHUNK_BLOCKS)]
    return np.concatenate(rows, axis=None)


def _chunks(blocks: Array, chunk_blocks: int) -> Iterator[tuple[Array, int]]:
    """(FP32 weights [32][n], first block): a block is a column, so that every operation runs over blocks.

    -0 becomes +0: which of the two a minimum or a maximum is differs between machines.
    """
    for first in range(0, len(blocks), chunk_blocks):
        chunk = blocks[first : first + chunk_blocks]
        if isinstance(chunk, np.ndarray):
            weights = np.ascontiguousarray(widen(chunk).T)
        else:
            weights = chunk.T.contiguous().float()
        weights += 0.0
        yield weights, first


def _library(array: Array) -> ModuleType:
    """numpy or torch. What is called of it here has the same name and meaning in both."""
    return np if isinstance(array, np.ndarray) else importlib.import_module("torch")


def _to(array: Array, type_name: str) -> Array:
    xp = _library(array)
    return xp.asarray(array, dtype=getattr(xp, type_name))


def _quotient(values: Array, divisor: float) -> Array:
    """The IEEE quotient: on a GPU torch multiplies by the reciprocal of a number that is not in an array."""
    return values / _library(values).full_like(values, divisor)


def _sum(values: Array) -> Array:
    """[32][n] -> [n]: halves added to each other five times, so that the order never depends on the machine."""
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    return values[0]


def _squared_error(decoded: Array, weights: Array) -> Array:
    error = _to(decoded, "float64") - weights
    error *= error
    return _sum(error)


def _round_to_fp16(values: Array) -> Array:
    """To nearest even; beyond the range, the largest: a candidate that is off is judged by its error."""
    return _to(_to(_library(values).clip(values, -FP16_MAX, FP16_MAX), "float16"), "float32")


def _fp16_bytes(values: Array) -> Array:
    return _to(values, "float16").view(_library(values).uint8).reshape(-1, 2)


def _q8_0_rows(weights: Array, first: int) -> Array:
    xp = _library(weights)
    scale, quants = _fit_q8_0(weights, first)
    return xp.concatenate((_fp16_bytes(scale), _to(quants, "int8").view(xp.uint8).T), axis=1)


def _affine4_rows(scale: Array, bias: Array, quants: Array) -> Array:
    nibbles = _to(quants, "uint8")
    pairs = nibbles[: GROUP // 2] | nibbles[GROUP // 2 :] << 4
    return _library(scale).concatenate((_fp16_bytes(scale), _fp16_bytes(bias), pairs.T), axis=1)


def _divisor(scale: Array) -> Array:
    """A scale to divide by. Where it is 0 every quant stands for the same weight, and 0 is stored."""
    return _library(scale).where(scale == 0, 1.0, scale)


def _require(in_range: Array, weights: Array, first: int, field: str) -> None:
    if not in_range.all():
        xp = _library(weights)
        index = int(xp.argmin(_to(in_range, "uint8")))
        column = weights[:, index]
        raise UnencodableBlockError(first + index, float(column[xp.argmax(xp.abs(column))]), field)


def _fit_q8_0(weights: Array, first: int) -> tuple[Array, Array]:
    """Scale [n] and quants [32][n]: of the two fp16 numbers around max|w| / 127 the one with the smaller error.

    The upper one reaches the largest weight, the lower one clips it to ±127 but is finer for all others.
    """
    xp = _library(weights)
    largest = xp.amax(xp.abs(weights), axis=0)
    _require(largest <= FP16_MAX * Q8_0_LEVELS, weights, first, "scale")
    wanted = _quotient(largest, Q8_0_LEVELS)
    nearest = _to(wanted, "float16")
    # The bits of fp16 numbers that are not negative count them in order; 65504 is never below what is wanted.
    step = xp.where(_to(nearest, "float32") < wanted, 1, -1)
    next_bits = xp.clip(nearest.view(xp.int16) + _to(step, "int16"), 0, None)
    scale, quants, error = None, None, None
    for candidate in (nearest, next_bits.view(xp.float16)):
        wide = _to(candidate, "float32")
        levels = xp.clip(xp.round(weights / _divisor(wide)), -Q8_0_LEVELS, Q8_0_LEVELS)
        found = _squared_error(levels * wide, weights)
        if scale is None:
            scale, quants, error = wide, levels, found
        else:
            better = found < error
            scale, quants = xp.where(better, wide, scale), xp.where(better, levels, quants)
    return scale, quants


def _assign(weights: Array, scale: Array, bias: Array) -> Array:
    """The nearest quant of each weight."""
    xp = _library(weights)
    quants = weights - bias
    quants /= _divisor(scale)
    xp.round(quants, out=quants)
    return xp.clip(quants, 0.0, AFFINE4_LEVELS, out=quants)


def _least_squares(weights: Array, quants: Array, scale: Array, bias: Array) -> tuple[Array, Array]:
    """The scale and bias that fit these quants best; as given where all quants are the same."""
    xp = _library(weights)
    sum_q, sum_w = _sum(quants), _sum(weights)
    sum_qq, sum_qw = _sum(quants * quants), _sum(quants * weights)
    spread = GROUP * sum_qq - sum_q * sum_q
    is_spread = spread > 0
    fitted = (GROUP * sum_qw - sum_q * sum_w) / xp.where(is_spread, spread, 1.0)
    fitted_bias = _quotient(sum_w - fitted * sum_q, GROUP)
    return xp.where(is_spread, fitted, scale), xp.where(is_spread, fitted_bias, bias)


def _fit_affine4_min_max(weights: Array, first: int) -> Affine4:
    xp = _library(weights)
    low, high = xp.amin(weights, axis=0), xp.amax(weights, axis=0)
    _require(xp.abs(low) <= FP16_MAX, weights, first, "bias")
    scale = _quotient(high - low, AFFINE4_LEVELS)
    _require(scale <= FP16_MAX, weights, first, "scale")
    scale, bias = _round_to_fp16(scale), _stored_bias(low)
    return scale, bias, _quants(weights, scale, bias)


def _fit_affine4(weights: Array, first: int) -> Affine4:
    """The best of the plain fit and of those found from AFFINE4_CUTS, all judged as they are stored."""
    xp = _library(weights)
    scale, bias, quants = _fit_affine4_min_max(weights, first)
    error = _squared_error(quants * scale + bias, weights)
    low, high = xp.amin(weights, axis=0), xp.amax(weights, axis=0)
    width = high - low
    for cut_low, cut_high in AFFINE4_CUTS:
        wanted_bias = low + cut_low * width
        wanted_scale = _quotient(high - cut_high * width - wanted_bias, AFFINE4_LEVELS)
        for _ in range(REFITS):
            levels = _assign(weights, wanted_scale, wanted_bias)
            wanted_scale, wanted_bias = _least_squares(weights, levels, wanted_scale, wanted_bias)
        new_scale, new_bias = _stored_fit(weights, wanted_scale, wanted_bias)
        new_quants = _quants(weights, new_scale, new_bias)
        new_error = _squared_error(new_quants * new_scale + new_bias, weights)
        better = new_error < error
        scale, bias = xp.where(better, new_scale, scale), xp.where(better, new_bias, bias)
        quants, error = xp.where(better, new_quants, quants), xp.where(better, new_error, error)
    return scale, bias, quants


def _stored_fit(weights: Array, scale: Array, bias: Array) -> tuple[Array, Array]:
    """The scale in fp16, and the bias that fits it best, in fp16, too: of a scale of 0, the mean of the weights."""
    stored = _round_to_fp16(scale)
    quants = _quants(weights, stored, bias)
    return stored, _stored_bias(_quotient(_sum(weights) - stored * _sum(quants), GROUP))


def _stored_bias(bias: Array) -> Array:
    return _round_to_fp16(bias) + 0.0  # the sum turns -0 to +0


def _quants(weights: Array, scale: Array, bias: Array) -> Array:
    """As they are stored: 0 where the scale is, by dividing by infinity."""
    return _assign(weights, _library(scale).where(scale == 0, np.inf, scale), bias)
