"""Recipe 1 of synthetic weights in torch, for a GPU: the same bytes as synthetic_recipe.py (tested).

torch has no unsigned 64-bit shifts, so words live in int64 (products and sums wrap alike) and shifts are masked.
"""

from __future__ import annotations

import threading

import numpy as np
import torch

from tools import synthetic_recipe as recipe
from tools.bf16 import host_bits
from tools.model_tensors import ModelTensor, TensorRole

MAX_WORDS = 1 << 24  # 128 MiB of int64 scratch


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shift_right(words: torch.Tensor, bits: int) -> torch.Tensor:
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def words(key: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """int64 [count]: words first…first+count-1 of a stream."""
    start = (key + (first + 1) * recipe.GOLDEN) & recipe.MASK64
    z = torch.arange(count, dtype=torch.int64, device=device) * _signed(recipe.GOLDEN) + _signed(start)
    for shift, multiplier in ((30, recipe.MULTIPLIER_1), (27, recipe.MULTIPLIER_2)):
        z = (z ^ _shift_right(z, shift)) * _signed(multiplier)
    return z ^ _shift_right(z, 31)


def centred_sums(z: torch.Tensor) -> torch.Tensor:
    """float32: the sum of a word's four 16-bit lanes less its mean, times 2^-16. Exact."""
    lanes = (z & recipe.LOW_LANES) + (_shift_right(z, 16) & recipe.LOW_LANES)
    sums = (lanes & 0xFFFFFFFF) + _shift_right(lanes, 32)
    return (sums - recipe.LANE_SUM_MEAN).to(torch.float32) * 2.0**-16


class TorchTwinWeights:
    """The same weights as those of TwinWeights, on the device."""

    def __init__(self, seed: int, num_layers: int, device: str) -> None:
        self._numpy = recipe.TwinWeights(seed, num_layers)
        self._device = torch.device(device)
        self._lock = threading.Lock()  # pieces come from several threads; one at a time bounds device memory

    def rows(self, tensor: ModelTensor, first_row: int, num_rows: int) -> np.ndarray:
        """As TwinWeights.rows: uint16 [num_rows × columns], in host memory."""
        return host_bits(self.device_rows(tensor, first_row, num_rows)).reshape(-1)

    def device_rows(self, tensor: ModelTensor, first_row: int, num_rows: int) -> torch.Tensor:
        """bfloat16 [num_rows][columns] on the device."""
        if tensor.role in (TensorRole.LAYER_NORM, TensorRole.FINAL_NORM):
            bits = self._numpy.rows(tensor, first_row, num_rows).view(np.int16).reshape(num_rows, -1)
            return torch.from_numpy(bits).view(torch.bfloat16).to(self._device)
        with self._lock:
            return self._drawn_rows(tensor, first_row, num_rows)

    def _drawn_rows(self, tensor: ModelTensor, first_row: int, num_rows: int) -> torch.Tensor:
        key = recipe.stream_key(self._numpy.seed, tensor.hf_name, recipe.STREAM_WEIGHTS)
        step = max(1, MAX_WORDS // tensor.columns)
        pieces = []
        for row in range(first_row, first_row + num_rows, step):
            count = min(step, first_row + num_rows - row)
            z = words(key, row * tensor.columns, count * tensor.columns, self._device)
            values = centred_sums(z).reshape(count, tensor.columns)
            pieces.append((values * self._scale(tensor, row, count)).to(torch.bfloat16))
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def _scale(self, tensor: ModelTensor, first_row: int, num_rows: int) -> torch.Tensor:
        if tensor.role in (TensorRole.EMBEDDING, TensorRole.HEAD):
            scale = recipe.row_amplitudes(self._numpy.seed, tensor, first_row, num_rows)[:, None]
        else:
            scale = np.array(recipe.amplitude(tensor.role, self._numpy.num_layers))
        return torch.from_numpy(scale).to(self._device)
