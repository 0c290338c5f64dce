"""Recipe 1 of synthetic weights, in numpy. docs/synthetic-twins.md is the specification; synthetic_torch.py its equal.

Every weight is a pure function of (seed, tensor name, index), so any row range of any tensor can be made alone.
"""

from __future__ import annotations

import math

import numpy as np

from tools.bf16 import narrow_finite
from tools.model_tensors import ModelTensor, TensorRole

RECIPE = 1
MASK64 = (1 << 64) - 1

# splitmix64 (Steele, Lea, Flood 2014): increment and the multipliers of its finaliser.
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER_1 = 0xBF58476D1CE4E5B9
MULTIPLIER_2 = 0x94D049BB133111EB

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3

# Independent sequences of one tensor.
STREAM_WEIGHTS = 0
STREAM_ROW_FACTORS = 1
STREAM_OUTLIERS = 2
STREAM_SIGNS = 3

LANE_SUM_MEAN = 131070  # of four uniform integers 0…65535
LOW_LANES = 0x0000FFFF0000FFFF

ROW_DEVIATION = 0.1  # embedding and head, before the row factor
PROJECTION_DEVIATION = 0.02
NORM_SPREAD = np.float32(0.1)
NORM_OUTLIER = np.float32(2.0)
NUM_NORM_OUTLIERS = 3
NUM_ROW_FACTORS = 33

# 2^(j/8), j = 0…7, rounded to float32.
_EIGHTHS = (1.0, 1.0905077326652577, 1.189207115002721, 1.2968395546510096, 1.4142135623730951, 1.5422108254079407,
            1.681792830507429, 1.8340080864093424)
# 2^((k - 16) / 8): 33 steps between 1/4 and 4.
ROW_FACTORS = np.array([math.ldexp(float(np.float32(_EIGHTHS[k % 8])), k // 8 - 2) for k in range(NUM_ROW_FACTORS)],
                       dtype=np.float32)

CHUNK_ELEMENTS = 1 << 15  # 256 KiB of 64-bit words: the scratch stays in the second-level cache


def mix(word: int) -> int:
    """splitmix64's finaliser on one 64-bit word."""
    word = ((word ^ (word >> 30)) * MULTIPLIER_1) & MASK64
    word = ((word ^ (word >> 27)) * MULTIPLIER_2) & MASK64
    return word ^ (word >> 31)


def fnv1a64(text: str) -> int:
    value = FNV_OFFSET
    for byte in text.encode("utf-8"):
        value = ((value ^ byte) * FNV_PRIME) & MASK64
    return value


def stream_key(seed: int, name: str, stream: int) -> int:
    """Where the sequence of words of one stream of one tensor starts."""
    return mix((mix(mix((seed + GOLDEN) & MASK64) ^ fnv1a64(name)) + stream * GOLDEN) & MASK64)


def word_at(key: int, index: int) -> int:
    return mix((key + (index + 1) * GOLDEN) & MASK64)


def amplitude(role: TensorRole, num_layers: int) -> np.float32:
    """Standard deviation times √3, because the centred lane sum × 2^-16 has deviation 1/√3. Evaluated in double."""
    if role in (TensorRole.EMBEDDING, TensorRole.HEAD):
        return np.float32(ROW_DEVIATION * math.sqrt(3.0))
    if role == TensorRole.RESIDUAL_PROJECTION:
        return np.float32(PROJECTION_DEVIATION * math.sqrt(3.0) / math.sqrt(2.0 * num_layers))
    return np.float32(PROJECTION_DEVIATION * math.sqrt(3.0))


def outlier_channels(seed: int, tensor: ModelTensor) -> list[int]:
    """Three distinct channels: words in turn, the high 32 bits scaled to the width, repeats skipped."""
    key = stream_key(seed, tensor.hf_name, STREAM_OUTLIERS)
    channels: list[int] = []
    index = 0
    while len(channels) < NUM_NORM_OUTLIERS:
        channel = (word_at(key, index) >> 32) * tensor.columns >> 32
        if channel not in channels:
            channels.append(channel)
        index += 1
    return channels


def _words(key: int, first: int, count: int) -> np.ndarray:
    """Words first…first+count-1 of a stream."""
    start = (key + (first + 1) * GOLDEN) & MASK64
    z = np.arange(count, dtype=np.uint64)
    z *= np.uint64(GOLDEN)
    z += np.uint64(start)
    for shift, multiplier in ((30, MULTIPLIER_1), (27, MULTIPLIER_2)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(multiplier)
    z ^= z >> np.uint64(31)
    return z


def row_amplitudes(seed: int, tensor: ModelTensor, first_row: int, num_rows: int) -> np.ndarray:
    """float32 [num_rows]: the amplitude of embedding or head times each row's factor from the table."""
    words = _words(stream_key(seed, tensor.hf_name, STREAM_ROW_FACTORS), first_row, num_rows)
    steps = ((words >> np.uint64(32)) * np.uint64(NUM_ROW_FACTORS)) >> np.uint64(32)
    return ROW_FACTORS[steps.astype(np.int64)] * amplitude(tensor.role, 0)


class TwinWeights:
    """The weights of one twin: bf16 bits of any rows of any of its tensors."""

    def __init__(self, seed: int, num_layers: int) -> None:
        self.seed = seed
        self.num_layers = num_layers

    def rows(self, tensor: ModelTensor, first_row: int, num_rows: int) -> np.ndarray:
        """uint16 [num_rows × columns]. Norms have one row."""
        if tensor.role in (TensorRole.LAYER_NORM, TensorRole.FINAL_NORM):
            return self._norm(tensor)
        scale: np.ndarray | np.float32 = amplitude(tensor.role, self.num_layers)
        by_row = tensor.role in (TensorRole.EMBEDDING, TensorRole.HEAD)
        out = np.empty((num_rows, tensor.columns), dtype=np.uint16)
        key = stream_key(self.seed, tensor.hf_name, STREAM_WEIGHTS)
        chunk_rows = max(1, CHUNK_ELEMENTS // tensor.columns)
        for row in range(0, num_rows, chunk_rows):
            rows = min(chunk_rows, num_rows - row)
            if by_row:
                scale = row_amplitudes(self.seed, tensor, first_row + row, rows)[:, None]
            words = _words(key, (first_row + row) * tensor.columns, rows * tensor.columns)
            values = _centred_sums(words).reshape(rows, tensor.columns)
            values *= scale
            out[row : row + rows] = narrow_finite(values)
        return out.reshape(-1)

    def _norm(self, tensor: ModelTensor) -> np.ndarray:
        words = _words(stream_key(self.seed, tensor.hf_name, STREAM_WEIGHTS), 0, tensor.columns)
        uniform = ((words >> np.uint64(48)).astype(np.float32) - np.float32(32768)) * np.float32(2.0**-15)
        values = uniform * NORM_SPREAD + np.float32(1)  # numpy rounds the product and the sum each
        values[outlier_channels(self.seed, tensor)] = NORM_OUTLIER
        if tensor.role == TensorRole.FINAL_NORM:
            signs = _words(stream_key(self.seed, tensor.hf_name, STREAM_SIGNS), 0, tensor.columns) >> np.uint64(63)
            values = np.where(signs == 1, -values, values)
        return narrow_finite(values)


def _centred_sums(words: np.ndarray) -> np.ndarray:
    """float32: the sum of a word's four 16-bit lanes less its mean, times 2^-16. Exact. Overwrites the words."""
    high = words >> np.uint64(16)
    high &= np.uint64(LOW_LANES)
    words &= np.uint64(LOW_LANES)
    words += high
    pairs = words.view(np.uint32).reshape(-1, 2)
    centred = (pairs[:, 0] + pairs[:, 1]).view(np.int32)
    centred -= np.int32(LANE_SUM_MEAN)
    values = centred.astype(np.float32)
    values *= np.float32(2.0**-16)
    return values
