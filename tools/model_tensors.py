"""The tensor set of a Qwen3 decoder: names in snapshot and artifact, shapes, and the fixed order of both files."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from tools.checkpoints import HEAD_DIM, VOCAB_SIZE, Checkpoint

EMBEDDING_NAME = "model.embed_tokens.weight"
HEAD_NAME = "lm_head.weight"


class TensorRole(enum.Enum):
    """What a tensor is. Only the projections of a layer are ever quantised."""

    EMBEDDING = "embedding"
    HEAD = "head"
    LAYER_NORM = "layer_norm"
    FINAL_NORM = "final_norm"
    PROJECTION = "projection"
    RESIDUAL_PROJECTION = "residual_projection"  # o_proj and down_proj: they write into the residual stream

    @property
    def is_projection(self) -> bool:
        return self in (TensorRole.PROJECTION, TensorRole.RESIDUAL_PROJECTION)


@dataclasses.dataclass(frozen=True)
class ModelTensor:
    """One weight; a matrix is [rows][columns] = [output features][input features], a norm is [columns]."""

    hf_name: str
    gguf_name: str
    role: TensorRole
    shape: tuple[int, ...]

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1

    @property
    def num_elements(self) -> int:
        return self.rows * self.columns


def model_tensors(checkpoint: Checkpoint, num_layers: int) -> list[ModelTensor]:
    """Every tensor in the order of the forward pass, which is the order of the artifact."""
    tensors = [ModelTensor(EMBEDDING_NAME, "token_embd.weight", TensorRole.EMBEDDING, (VOCAB_SIZE, checkpoint.hidden))]
    for layer in range(num_layers):
        tensors.extend(_layer_tensors(checkpoint, layer))
    tensors.append(ModelTensor("model.norm.weight", "output_norm.weight", TensorRole.FINAL_NORM, (checkpoint.hidden,)))
    if not checkpoint.tied_head:
        tensors.append(ModelTensor(HEAD_NAME, "output.weight", TensorRole.HEAD, (VOCAB_SIZE, checkpoint.hidden)))
    return tensors


def _layer_tensors(checkpoint: Checkpoint, layer: int) -> Iterator[ModelTensor]:
    hidden, ffn = checkpoint.hidden, checkpoint.ffn
    norm, projection, residual = TensorRole.LAYER_NORM, TensorRole.PROJECTION, TensorRole.RESIDUAL_PROJECTION
    for hf_part, gguf_part, role, shape in (
        ("input_layernorm", "attn_norm", norm, (hidden,)),
        ("self_attn.q_proj", "attn_q", projection, (checkpoint.query_width, hidden)),
        ("self_attn.k_proj", "attn_k", projection, (checkpoint.kv_width, hidden)),
        ("self_attn.v_proj", "attn_v", projection, (checkpoint.kv_width, hidden)),
        ("self_attn.q_norm", "attn_q_norm", norm, (HEAD_DIM,)),
        ("self_attn.k_norm", "attn_k_norm", norm, (HEAD_DIM,)),
        ("self_attn.o_proj", "attn_output", residual, (hidden, checkpoint.query_width)),
        ("post_attention_layernorm", "ffn_norm", norm, (hidden,)),
        ("mlp.gate_proj", "ffn_gate", projection, (ffn, hidden)),
        ("mlp.up_proj", "ffn_up", projection, (ffn, hidden)),
        ("mlp.down_proj", "ffn_down", residual, (hidden, ffn)),
    ):
        yield ModelTensor(f"model.layers.{layer}.{hf_part}.weight", f"blk.{layer}.{gguf_part}.weight", role, shape)


def row_pieces(tensor: ModelTensor, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts a tensor of 2-byte elements into (first row, number of rows), each piece about piece_bytes long."""
    rows_per_piece = max(1, piece_bytes // (2 * tensor.columns))
    for first in range(0, tensor.rows, rows_per_piece):
        yield first, min(rows_per_piece, tensor.rows - first)
