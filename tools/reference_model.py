"""The reference: Transformers' Qwen3 in true FP32 (or BF16), eager attention, deterministic, TF32 off."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic cuBLAS; must be set before CUDA starts

import numpy as np
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from tools.checkpoints import HEAD_DIM, NUM_KV_HEADS, RMS_NORM_EPSILON, VOCAB_SIZE
from tools.errors import ToolError, mismatch
from tools.gguf_reader import GgufFile
from tools.model_tensors import model_tensors
from tools.reference_source import ReferenceSource, artifact_pieces
from tools.weight_schemes import BF16, SCHEMES, Encoding

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NUM_GREEDY = 8


@dataclasses.dataclass(frozen=True)
class Observation:
    """What the reference computed for one prompt of T tokens; all float32 on the host."""

    final_hidden: np.ndarray  # [T][hidden], after the final norm: the input of the head
    logits: np.ndarray  # [P][vocab]
    taps: np.ndarray  # [layers + 1][Q][hidden]: the residual stream after the embedding and after each layer
    greedy: np.ndarray  # int32 [NUM_GREEDY]


def configure_torch() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)


def reference_config(source: ReferenceSource) -> Qwen3Config:
    checkpoint = source.checkpoint
    return Qwen3Config(
        vocab_size=VOCAB_SIZE, hidden_size=checkpoint.hidden, intermediate_size=checkpoint.ffn,
        num_hidden_layers=source.num_layers, num_attention_heads=checkpoint.num_query_heads,
        num_key_value_heads=NUM_KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=checkpoint.context,
        rms_norm_eps=RMS_NORM_EPSILON, tie_word_embeddings=checkpoint.tied_head,
        rope_parameters={"rope_theta": checkpoint.rope_theta, "rope_type": "default"}, attn_implementation="eager")


def load_reference(source: ReferenceSource, device: str, dtype: torch.dtype) -> Qwen3ForCausalLM:
    """A snapshot goes through Transformers' own loading; an artifact fills the same model tensor by tensor.

    In FP32 the model holds exactly the weights of the artifact, also where they are quantised.
    """
    configure_torch()
    if source.header_sha256 is None:
        model = Qwen3ForCausalLM.from_pretrained(source.path, dtype=dtype, attn_implementation="eager",
                                                 local_files_only=True).to(device)
    else:
        model = _filled_from_artifact(source, device, dtype)
    return model.eval()


def _decoded(encoding: Encoding, stored: np.ndarray, device: str) -> torch.Tensor:
    """float32 on the device: exactly what the stored bytes stand for. BF16 is widened there, which saves minutes."""
    if encoding is BF16:
        bits = torch.from_numpy(stored.view("<i2").copy()).to(device)
        return bits.view(torch.bfloat16).float()
    return torch.from_numpy(encoding.decode(stored)).to(device)


def _filled_from_artifact(source: ReferenceSource, device: str, dtype: torch.dtype) -> Qwen3ForCausalLM:
    config = reference_config(source)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(dtype)
    model.to_empty(device=device)
    model.model.rotary_emb = Qwen3RotaryEmbedding(config=config).to(device)  # its buffers are not in the file
    if source.checkpoint.tied_head:
        model.lm_head.weight = model.model.embed_tokens.weight
    unfilled = dict(model.named_parameters())
    with GgufFile(source.path) as file, torch.no_grad():
        for tensor in model_tensors(source.checkpoint, source.num_layers):
            flat = unfilled.pop(tensor.hf_name).view(-1)
            position = 0
            for encoding, stored in artifact_pieces(file, tensor, SCHEMES[source.quant_scheme]):
                weights = _decoded(encoding, stored, device)
                if not weights.isfinite().all():
                    raise mismatch(file.path, f"tensor {tensor.gguf_name}", "finite numbers", "NaN or infinity")
                flat[position : position + weights.numel()].copy_(weights)
                position += weights.numel()
    if unfilled:
        raise ToolError(f"{source.path}: the reference model has weights that no tensor filled: {sorted(unfilled)}")
    return model


class Taps:
    """Hooks that keep the residual stream at chosen positions: after the embedding and after each layer."""

    def __init__(self, model: Qwen3ForCausalLM, positions: list[int]) -> None:
        self._positions = positions
        self._rows: list[np.ndarray] = []
        modules = [model.model.embed_tokens, *model.model.layers]
        self._handles = [module.register_forward_hook(self._keep) for module in modules]

    def _keep(self, _module: torch.nn.Module, _inputs: object, output: torch.Tensor | tuple) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        self._rows.append(hidden[0, self._positions].float().cpu().numpy())

    def remove(self) -> np.ndarray:
        for handle in self._handles:
            handle.remove()
        return np.stack(self._rows)


@torch.no_grad()
def observe(model: Qwen3ForCausalLM, ids: list[int], logit_positions: list[int], tap_positions: list[int],
            num_tokens: int) -> Observation:
    """num_tokens: ids from it on have no token and are never generated."""
    device = model.lm_head.weight.device
    taps = Taps(model, tap_positions)
    output = model.model(input_ids=torch.tensor([ids], device=device), use_cache=True)
    residuals = taps.remove()
    hidden = output.last_hidden_state[0]
    logits = model.lm_head(hidden[logit_positions]).float().cpu().numpy()
    greedy = _greedy(model, hidden[-1:], output.past_key_values, num_tokens)
    return Observation(hidden.float().cpu().numpy(), logits.reshape(-1, VOCAB_SIZE), residuals, greedy)


class _RoundedCache(DynamicCache):
    """K (after RoPE) and V to the nearest BF16 before anything reads them, as Kipp's cache stores them."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,
               **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rounded = (states.to(torch.bfloat16).to(states.dtype) for states in (key_states, value_states))
        return super().update(*rounded, *args, **kwargs)


@torch.no_grad()
def final_hidden_with_rounded_kv(model: Qwen3ForCausalLM, ids: list[int]) -> np.ndarray:
    """[T][hidden]: observe()'s final_hidden if nothing but K and V were rounded. What the storage of K and V costs."""
    device = model.lm_head.weight.device
    output = model.model(input_ids=torch.tensor([ids], device=device), past_key_values=_RoundedCache(), use_cache=True)
    return output.last_hidden_state[0].float().cpu().numpy()


def _greedy(model: Qwen3ForCausalLM, last_hidden: torch.Tensor, cache: object, num_tokens: int) -> np.ndarray:
    """The argmax path; rows of the head without a token never win. It does not stop at stop tokens."""
    chosen: list[int] = []
    while True:
        logits = model.lm_head(last_hidden)[0, :num_tokens].float()
        chosen.append(int(logits.argmax()))
        if len(chosen) == NUM_GREEDY:
            return np.array(chosen, dtype=np.int32)
        step = torch.tensor([chosen[-1:]], device=logits.device)
        last_hidden = model.model(input_ids=step, past_key_values=cache, use_cache=True).last_hidden_state[0]
