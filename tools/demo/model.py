"""The demo's forward pass for training, over the parameters of a Transformers Qwen3 model (a test compares the two).

Every batch is one flat list of tokens of a fixed size, so each function sees one shape whatever the row length, and
torch.compile needs to run once. Weights stay FP32 and are rounded to BF16 where they are used, as in the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from tools.demo.corpus import VOCAB_SIZE

HEAD_DIM = 128
EPSILON = 1e-6


@dataclass(frozen=True)
class Shape:
    """The registry's dimensions of kipp-demo."""

    layers: int = 8
    hidden: int = 192
    ffn: int = 512
    query_heads: int = 16
    kv_heads: int = 8
    context: int = 2048
    rope_theta: float = 1e6

    def config(self, vocab_size: int = VOCAB_SIZE) -> dict[str, object]:
        """config.json in the form that Qwen3 checkpoints have."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.context,
            "max_window_layers": self.layers,
            "model_type": "qwen3",
            "num_attention_heads": self.query_heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": EPSILON,
            "rope_scaling": None,
            "rope_theta": self.rope_theta,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.51.0",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": vocab_size,
        }


def build(shape: Shape, num_rows: int, seed: int) -> Qwen3ForCausalLM:
    """A fresh model whose embedding has `num_rows` trained rows and one more, always zero, for every other id."""
    torch.manual_seed(seed)
    config = shape.config(num_rows + 1)
    config["bos_token_id"] = config["eos_token_id"] = None  # they name rows of the full vocabulary
    model = Qwen3ForCausalLM(Qwen3Config(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                scale = 1 / math.sqrt(2 * shape.layers) if "o_proj" in name or "down_proj" in name else 1.0
                parameter.normal_(0.0, 0.02 * scale)
        model.model.embed_tokens.weight[num_rows].zero_()
    return model


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x.float(), (x.shape[-1],), weight, EPSILON)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding: halves of a head form the pairs. x [T, heads, 128], tables [T, 1, 128]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attention_inputs(
    x: torch.Tensor, weights: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """x [T, hidden] to rotated q [T, 16, 128], k and v [T, 8, 128]."""
    norm, q_proj, k_proj, v_proj, q_norm, k_norm = weights
    h = rms_norm(x, norm).to(dtype)
    q = functional.linear(h, q_proj.to(dtype)).view(len(x), -1, HEAD_DIM)
    k = functional.linear(h, k_proj.to(dtype)).view(len(x), -1, HEAD_DIM)
    v = functional.linear(h, v_proj.to(dtype)).view(len(x), -1, HEAD_DIM)
    return rotate(rms_norm(q, q_norm), cos, sin).to(dtype), rotate(rms_norm(k, k_norm), cos, sin).to(dtype), v


def block_output(
    x: torch.Tensor, attended: torch.Tensor, weights: list[torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """Output projection, residual, and the gated feed-forward part. x [T, hidden], attended [T, 2048]."""
    o_proj, norm, gate_proj, up_proj, down_proj = weights
    x = x + functional.linear(attended, o_proj.to(dtype)).float()
    h = rms_norm(x, norm).to(dtype)
    gated = functional.silu(functional.linear(h, gate_proj.to(dtype))) * functional.linear(h, up_proj.to(dtype))
    return x + functional.linear(gated, down_proj.to(dtype)).float()


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int) -> torch.Tensor:
    """Causal attention inside each row of `length` tokens; padding sits at the end, so causality hides it."""
    q, k, v = (tensor.reshape(-1, length, tensor.shape[1], HEAD_DIM).transpose(1, 2) for tensor in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).reshape(-1, q.shape[1] * HEAD_DIM)


@dataclass
class Forward:
    """The forward pass to the final norm. The two token-wise functions may be replaced by their compiled forms."""

    model: Qwen3ForCausalLM
    shape: Shape
    dtype: torch.dtype
    inputs: Callable[..., tuple[torch.Tensor, ...]] = attention_inputs
    output: Callable[..., torch.Tensor] = block_output
    tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def rope(self, length: int, total: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if length not in self.tables:
            frequencies = self.shape.rope_theta ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
            angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies).repeat(total // length, 2)
            self.tables[length] = (angles.cos().float().to(device)[:, None], angles.sin().float().to(device)[:, None])
        return self.tables[length]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [rows, length] to hidden states [rows × length, hidden]."""
        length = tokens.shape[1]
        cos, sin = self.rope(length, tokens.numel(), tokens.device)
        x = functional.embedding(tokens.reshape(-1), self.model.model.embed_tokens.weight.to(self.dtype)).float()
        for layer in self.model.model.layers:
            a, m = layer.self_attn, layer.mlp
            first = [
                layer.input_layernorm.weight,
                a.q_proj.weight,
                a.k_proj.weight,
                a.v_proj.weight,
                a.q_norm.weight,
                a.k_norm.weight,
            ]
            second = [
                a.o_proj.weight,
                layer.post_attention_layernorm.weight,
                m.gate_proj.weight,
                m.up_proj.weight,
                m.down_proj.weight,
            ]
            q, k, v = self.inputs(x, first, cos, sin, self.dtype)
            x = self.output(x, attend(q, k, v, length), second, self.dtype)
        return rms_norm(x, self.model.model.norm.weight)


class TiedCrossEntropy(torch.autograd.Function):
    """Weighted cross entropy over the full vocabulary with only the trained rows stored.

    Every row held at zero has logit 0, so together they add log(num_unused) to the log-sum-exp: exact, not sampled.
    Logits are made in pieces, with their gradient right away, so that they never exist as a whole.
    """

    @staticmethod
    def forward(ctx, hidden, embedding, targets, weights, num_unused, dtype, pieces):  # type: ignore[no-untyped-def]
        rounded = embedding.to(dtype).float()
        weights = weights / weights.sum().clamp_min(1e-6)
        grad_hidden = torch.empty_like(hidden)
        grad_embedding = torch.zeros_like(embedding)
        losses = torch.empty_like(weights)
        rest = torch.tensor(math.log(num_unused), device=hidden.device)
        for part in torch.arange(len(hidden), device="cpu").chunk(pieces):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            x, target, weight = hidden[rows], targets[rows, None], weights[rows]
            logits = functional.linear(x, rounded)
            total = torch.logaddexp(torch.logsumexp(logits, dim=1), rest)
            losses[rows] = total - logits.gather(1, target)[:, 0]
            grad = logits.sub_(total[:, None]).exp_().mul_(weight[:, None])
            grad.scatter_add_(1, target, -weight[:, None])
            grad_hidden[rows] = grad @ rounded
            grad_embedding += grad.t() @ x
        ctx.save_for_backward(grad_hidden, grad_embedding)
        return (losses * weights).sum()

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        grad_hidden, grad_embedding = ctx.saved_tensors
        return grad_hidden * grad_output, grad_embedding * grad_output, None, None, None, None, None


def batch_targets(
    tokens: torch.Tensor, spans: torch.Tensor, unknown: int, prompt_weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens and their weights: 1 where the model has to write, `prompt_weight` inside prompts, 0 on padding."""
    targets = torch.cat((tokens[:, 1:], torch.zeros_like(tokens[:, :1])), dim=1)
    position = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    weights = torch.where(position >= spans[:, :1], 1.0, prompt_weight) * (position < spans[:, 1:])
    weights = weights * (targets != unknown)
    return (targets * (targets != unknown)).reshape(-1), weights.reshape(-1)
