"""How weights are stored in an artifact: one scheme per artifact, one encoding per tensor.

A scheme quantises the per-layer projections only; embedding, head and norms stay BF16. A further scheme is one more
entry in SCHEMES with an encoder that maps whole rows of BF16 bits to bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tools.model_tensors import ModelTensor


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A storage format of GGML: blocks of consecutive elements of one row."""

    ggml_type: int
    block_elements: int
    block_bytes: int
    encode: Callable[[np.ndarray], np.ndarray]  # uint16 bf16 bits [rows][columns] -> bytes, row after row

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


BF16 = Encoding(ggml_type=30, block_elements=1, block_bytes=2, encode=lambda bits: bits)

SCHEMES = {
    "bf16": WeightScheme(name="bf16", file_type=32, projection=BF16),
}
