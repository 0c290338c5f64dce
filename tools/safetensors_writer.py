"""Writes one safetensors file tensor by tensor: the header is complete before the first byte of data."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from tools.model_tensors import ModelTensor


def encode_header(tensors: Sequence[ModelTensor]) -> bytes:
    """The header of a BF16 file with these tensors in this order, padded with spaces so that data is 8-byte aligned."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in tensors:
        end = position + 2 * tensor.num_elements
        entries[tensor.hf_name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
