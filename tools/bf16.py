"""bfloat16 as its bits in numpy uint16: widening is exact, narrowing rounds to nearest even (as src/base/bf16.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    Array = np.ndarray | torch.Tensor  # where it holds bf16: uint16, or torch's bfloat16 on any device


def host_bits(bits: Array) -> np.ndarray:
    """bf16 of numpy or torch as uint16 in host memory."""
    if isinstance(bits, np.ndarray):
        return bits
    import torch

    return bits.cpu().view(torch.int16).numpy().view(np.uint16)


def narrow_finite(values: np.ndarray) -> np.ndarray:
    """The bf16 bits of finite float32 values. Works in place: the values are overwritten."""
    bits = values.view(np.uint32)
    tie = bits >> np.uint32(16)
    tie &= np.uint32(1)
    tie += np.uint32(0x7FFF)
    bits += tie
    bits >>= np.uint32(16)
    return bits.astype(np.uint16)


def widen(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bf16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def first_non_finite(bits: np.ndarray) -> int:
    """The flat index of the first NaN or infinity, or -1."""
    non_finite = (bits & np.uint16(0x7F80)) == np.uint16(0x7F80)
    return int(np.argmax(non_finite)) if non_finite.any() else -1
