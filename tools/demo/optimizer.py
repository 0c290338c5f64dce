"""Muon for the projection matrices, AdamW for the embedding and the norms.

Muon (Keller Jordan, 2024): momentum, then the nearest orthogonal matrix by Newton-Schulz steps, so that every direction
of a matrix moves at the same rate. Needs fewer steps than AdamW at this size.
"""

from __future__ import annotations

import torch

COEFFICIENTS = (
    3.4445,
    -4.7750,
    2.0315,
)  # of the quintic step; chosen by its author for speed, not for exact convergence


def orthogonalise(matrices: torch.Tensor, dtype: torch.dtype, steps: int = 5) -> torch.Tensor:
    """Nearly the orthogonal factor of each matrix. matrices [n, rows, columns]"""
    x = matrices.to(dtype)
    transpose = x.shape[1] > x.shape[2]
    if transpose:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if transpose else x


class Muon:
    """One momentum stack per matrix shape, so that all matrices of a shape are orthogonalised together."""

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        momentum: float = 0.95,
        decay: float = 0.03,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.groups: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            self.groups.setdefault(parameter.shape, []).append(parameter)
        self.buffers = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()
        }
        self.momentum, self.decay, self.dtype = momentum, decay, dtype

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, group in self.groups.items():
            gradient = torch.stack([parameter.grad for parameter in group])
            buffer = self.buffers[shape]
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(buffer, self.momentum), self.dtype).float()
            scaled = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(group, 1 - rate * self.decay)
            torch._foreach_add_(group, list(update.unbind(0)), alpha=-scaled)


class Optimizer:
    """Both optimizers under one learning-rate schedule in [0, 1]."""

    def __init__(self, model: torch.nn.Module, matrix_rate: float, other_rate: float, dtype: torch.dtype) -> None:
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in named if p.ndim != 2 or "embed" in name]
        self.muon = Muon(matrices, dtype=dtype)
        self.adam = torch.optim.AdamW(
            others, lr=other_rate, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=others[0].is_cuda
        )
        self.parameters = [p for _, p in named]
        self.matrix_rate, self.other_rate = matrix_rate, other_rate

    def step(self, schedule: float) -> torch.Tensor:
        """One step; returns the gradient's norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * schedule
        self.adam.step()
        self.muon.step(self.matrix_rate * schedule)
        for parameter in self.parameters:
            parameter.grad = None
        return norm


def schedule(fraction: float, warmup: float = 0.01, cooldown: float = 0.6) -> float:
    """Of elapsed time, not of steps, so that the run ends annealed however fast it was."""
    return max(0.0, min(1.0, fraction / warmup, (1.0 - fraction) / cooldown))
