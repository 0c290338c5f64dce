"""What a quantised scheme costs, or rounding K and V: one run of the reference beside another.

The head is the same BF16 matrix in every scheme, so that the final hidden states of both, as vectors hold them, give
all logits. Nothing here is about an engine: it is the loss of the weights, or of the rounding, alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import torch

from tools.errors import ToolError, mismatch
from tools.reference_source import ReferenceSource
from tools.safetensors_reader import SafetensorsFile
from tools.strict_json import parse_json_object

ROWS_AT_ONCE = 64  # 78 MB of FP64 logits from each side


@dataclasses.dataclass
class Loss:
    """Over positions; NMSE = Σ(a−b)² / Σb² over the whole vocabulary in double, b of the better run."""

    errors: float = 0.0
    squares: float = 0.0
    worst_nmse: float = 0.0
    num_equal_argmax: int = 0
    num_positions: int = 0

    def add(self, other: Loss) -> None:
        self.errors += other.errors
        self.squares += other.squares
        self.worst_nmse = max(self.worst_nmse, other.worst_nmse)
        self.num_equal_argmax += other.num_equal_argmax
        self.num_positions += other.num_positions

    @property
    def nmse(self) -> float:
        return self.errors / self.squares

    def facts(self) -> dict[str, object]:
        return {"nmse": self.nmse, "worst_nmse": self.worst_nmse,
                "argmax_equal": self.num_equal_argmax, "positions": self.num_positions}


class Bf16Vectors:
    """The vectors of the BF16 artifact of the same weights, made with at least the same prompts."""

    def __init__(self, folder: Path, source: ReferenceSource, dtype: str) -> None:
        path = folder / "manifest.json"
        data = path.read_bytes()
        manifest = parse_json_object(data, path)
        expected = {"checkpoint_id": source.checkpoint.id, "repository": source.repository,
                    "revision": source.revision, "quant_scheme": "bf16"}
        for field, value in expected.items():
            if manifest.get(field) != value:
                raise mismatch(path, field, value, manifest.get(field))
        reference, prompts = manifest.get("reference"), manifest.get("prompts")
        if not isinstance(reference, dict) or reference.get("dtype") != dtype or not isinstance(prompts, list):
            raise mismatch(path, "reference", f"one in {dtype}, and its prompts", reference)
        self.manifest_sha256 = hashlib.sha256(data).hexdigest()
        self._path = path
        self._entries = {entry["name"]: entry for entry in prompts}

    def final_hidden(self, name: str, ids: list[int]) -> np.ndarray:
        """[T][hidden]; a longer prompt that begins with these ids serves as well."""
        if name not in self._entries:
            raise ToolError(f"{self._path}: holds no prompt {name}")
        with SafetensorsFile(self._path.parent / self._entries[name]["file"]) as file:
            found = _read(file, "ids", np.int32).tolist()
            if found[: len(ids)] != ids:
                raise mismatch(self._path, f"ids of {name}", "those of the prompt", "others")
            return _read(file, "final_hidden", np.float32).reshape(len(found), -1)[: len(ids)]


def _read(file: SafetensorsFile, name: str, dtype: type) -> np.ndarray:
    entry = file.tensors[name]
    return np.frombuffer(file.read(entry, 0, entry.num_bytes), dtype)


@torch.no_grad()
def loss_of(head: torch.nn.Module, found: np.ndarray, better: np.ndarray) -> Loss:
    """Of one prompt; both [T][hidden], the inputs of the head."""
    loss = Loss()
    weight = head.weight
    for start in range(0, len(found), ROWS_AT_ONCE):
        a, b = (head(torch.from_numpy(np.ascontiguousarray(rows[start : start + ROWS_AT_ONCE]))
                     .to(weight.device, weight.dtype)).double() for rows in (found, better))
        errors, squares = (a - b).square().sum(dim=1), b.square().sum(dim=1)
        loss.add(Loss(float(errors.sum()), float(squares.sum()), float((errors / squares).max()),
                      int((a.argmax(dim=1) == b.argmax(dim=1)).sum()), len(a)))
    return loss
