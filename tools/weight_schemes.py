"""How weights are stored in an artifact: one scheme per artifact, one encoding per tensor.

A scheme quantises the per-layer projections only; embedding, head and norms stay BF16. Q8_0 is near-lossless, AFFINE4
is lossy: docs/MODELS.md has what each costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tools import block_quantization as blocks
from tools.bf16 import host_bits, widen
from tools.model_tensors import ModelTensor

if TYPE_CHECKING:
    from tools.bf16 import Array


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A storage format of GGML: blocks of consecutive elements of one row."""

    name: str  # GGML's
    ggml_type: int
    block_elements: int
    block_bytes: int
    encode: Callable[[Array], np.ndarray]  # bf16 [rows][columns], in numpy or torch -> stored rows, in host memory
    decode: Callable[[np.ndarray], np.ndarray]  # whole stored blocks as uint8 -> float32 weights

    def num_bytes(self, num_elements: int) -> int:
        return num_elements // self.block_elements * self.block_bytes


@dataclasses.dataclass(frozen=True)
class WeightScheme:
    """The encoding of the projections, and GGUF's general.file_type for the whole."""

    name: str
    file_type: int
    projection: Encoding

    def encoding_of(self, tensor: ModelTensor) -> Encoding:
        return self.projection if tensor.role.is_projection else BF16


BF16 = Encoding(name="BF16", ggml_type=30, block_elements=1, block_bytes=2, encode=host_bits,
                decode=lambda data: widen(data.view("<u2")))
Q8_0 = Encoding(name="Q8_0", ggml_type=8, block_elements=blocks.GROUP, block_bytes=blocks.Q8_0_BYTES,
                encode=blocks.encode_q8_0, decode=blocks.decode_q8_0)
AFFINE4_GS32 = Encoding(name="Q4_1", ggml_type=3, block_elements=blocks.GROUP, block_bytes=blocks.AFFINE4_BYTES,
                        encode=blocks.encode_affine4, decode=blocks.decode_affine4)  # decision 0008: why Q4_1

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        WeightScheme(name="bf16", file_type=32, projection=BF16),
        WeightScheme(name="q8_0", file_type=7, projection=Q8_0),
        WeightScheme(name="affine4_gs32", file_type=3, projection=AFFINE4_GS32),
    )
}
