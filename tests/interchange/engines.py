"""The same token ids through Kipp and through llama.cpp: the logits of every position, and how far they are apart."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import llama_cpp
import numpy as np

from tools.artifact import PIECE_BYTES
from tools.atomic_file import AtomicFile
from tools.checkpoints import VOCAB_SIZE
from tools.export_llama_cpp import F32_BYTES, GGML_F32, exported_metadata
from tools.gguf_reader import GgufFile
from tools.gguf_writer import GgufWriter, TensorInfo
from tools.weight_schemes import AFFINE4_GS32, BF16, Q8_0

MAX_PROMPT = 256  # tokens: llama.cpp evaluates a prompt in one piece
KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "bf16": BF16.ggml_type, "f32": llama_cpp.GGML_TYPE_F32}

Prompts = dict[str, list[int]]
Logits = dict[str, np.ndarray]  # [positions][vocab] of each prompt


def kipp_logits(binary: Path, artifact: Path, prompts: Prompts, output: Path, *, round_kv: bool = True) -> Logits:
    """Kipp's logits, mapped from the file that the program writes."""
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts.values())
    command = [binary, artifact, output, *([] if round_kv else ["fp32-kv"])]
    subprocess.run(command, input=lines, text=True, check=True)
    rows = np.memmap(output, dtype=np.float32, mode="r").reshape(-1, VOCAB_SIZE)
    assert len(rows) == sum(map(len, prompts.values()))
    ends = np.cumsum([len(ids) for ids in prompts.values()])
    return dict(zip(prompts, np.split(rows, ends[:-1]), strict=True))


def open_llama(path: Path, kv_type: str = "f16", *, vocab_only: bool = False) -> llama_cpp.Llama:
    """llama.cpp on the CPU, without flash attention. One thread: several wait for each other on a busy machine."""
    return llama_cpp.Llama(str(path), n_gpu_layers=0, vocab_only=vocab_only, use_mmap=True, n_ctx=MAX_PROMPT,
                           n_batch=MAX_PROMPT, n_ubatch=MAX_PROMPT, n_threads=1, n_threads_batch=1,
                           logits_all=not vocab_only, flash_attn=False, type_k=KV_TYPES[kv_type],
                           type_v=KV_TYPES[kv_type], verbose=False)


def llama_logits(path: Path, prompts: Prompts, kv_type: str) -> Logits:
    llama = open_llama(path, kv_type)
    found = {}
    for name, ids in prompts.items():
        assert len(ids) <= MAX_PROMPT
        llama.reset()
        llama.eval(ids)
        assert llama.n_tokens == len(ids)
        found[name] = llama.scores[: len(ids)].copy()
    llama.close()
    return found


@dataclasses.dataclass(frozen=True)
class Distance:
    """NMSE is Σ(a−b)² / Σb² in double: over a prompt, and of its worst row."""

    nmse: float
    worst_nmse: float
    worst_position: int
    num_positions: int
    num_equal_argmax: int

    def __str__(self) -> str:
        return (f"NMSE {self.nmse:.2e} (worst row {self.worst_nmse:.2e} at {self.worst_position}), "
                f"argmax equal at {self.num_equal_argmax} of {self.num_positions}")


def distance(found: np.ndarray, reference: np.ndarray) -> Distance:
    assert found.shape == reference.shape
    errors, squares, num_equal = [], [], 0
    for a, b in zip(found, reference, strict=True):
        errors.append(np.sum(np.square(a.astype(np.float64) - b)))
        squares.append(np.sum(np.square(b, dtype=np.float64)))
        num_equal += int(np.argmax(a) == np.argmax(b))
    rows = np.array(errors) / np.array(squares)
    return Distance(sum(errors) / sum(squares), float(rows.max()), int(rows.argmax()), len(rows), num_equal)


def write_all_in_f32(artifact: Path, path: Path) -> None:
    """The artifact with every tensor in F32, quantised ones as what they stand for: llama.cpp rounds no activation."""
    with GgufFile(artifact) as file, AtomicFile(path) as target:
        infos = [TensorInfo(name, entry.dimensions, GGML_F32, F32_BYTES * file.num_elements(name))
                 for name, entry in file.tensors.items()]
        writer = GgufWriter(target, exported_metadata(file), infos)
        for name, entry in file.tensors.items():
            writer.begin_tensor(name)
            encoding = next(known for known in (BF16, Q8_0, AFFINE4_GS32) if known.ggml_type == entry.ggml_type)
            num_bytes = encoding.num_bytes(file.num_elements(name))
            step = PIECE_BYTES // encoding.block_bytes * encoding.block_bytes
            for start in range(0, num_bytes, step):
                data = file.read(name, start, min(step, num_bytes - start))
                writer.write(encoding.decode(np.frombuffer(data, np.uint8)).data)
        writer.finish()
        target.commit()
