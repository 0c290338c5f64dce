"""What a GPU does without Kipp, measured with torch: its memory, cuBLAS on a checkpoint's shapes, Transformers.

bench/cuda_roofline.py calls these; they need torch and, for the last, transformers.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from prompt_products import Product, products_of, prompt_of, spread
from provenance import ROOT

sys.path.append(str(ROOT))

from tools.checkpoints import HEAD_DIM, NUM_KV_HEADS, RMS_NORM_EPSILON, VOCAB_SIZE, Checkpoint

SQUARE = 8192


def device_seconds(work: Callable[[], Any], repetitions: int, calls: int) -> list[float]:
    """Seconds of one call: each repetition is the mean over `calls` between two events, after one that warms up."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    seconds = []
    for _ in range(repetitions + 1):
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3 / calls)
    return seconds[1:]


def memory_rates(num_bytes: int, repetitions: int) -> dict[str, Any]:
    """Bytes a second of torch's own kernels: a sum reads, a copy reads and writes."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    sums = device_seconds(source.sum, repetitions, 3)
    copies = device_seconds(lambda: target.copy_(source), repetitions, 3)
    return {"bytes": num_bytes, "sum_bytes_per_second": spread([num_bytes / one for one in sums]),
            "copy_bytes_per_second": spread([2 * num_bytes / one for one in copies])}


def product_rate(product: Product, repetitions: int) -> dict[str, Any]:
    """Operations a second of cuBLAS, in BF16 with sums in FP32."""
    activations = torch.randn(product.num_tokens, product.columns, dtype=torch.bfloat16, device="cuda")
    matrix = torch.randn(product.rows, product.columns, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(product.num_tokens, product.rows, dtype=torch.bfloat16, device="cuda")
    seconds = device_seconds(lambda: torch.mm(activations, matrix.T, out=out), repetitions, 10)
    rates = [product.operations / one for one in seconds]
    return {**dataclasses.asdict(product), "operations_per_second": spread(rates)}


def cublas_rates(checkpoints: list[Checkpoint], num_tokens: int, repetitions: int) -> dict[str, Any]:
    """The square that shows the machine's rate, then each checkpoint's shapes and how long they take a prompt."""
    rates: dict[str, Any] = {"square": product_rate(Product("square", SQUARE, SQUARE, SQUARE), repetitions)}
    for checkpoint in checkpoints:
        products = products_of(checkpoint, num_tokens)
        measured = [product_rate(product, repetitions) for product in products]
        medians = [one["operations_per_second"]["median"] for one in measured]
        rates[checkpoint.id] = {"products": measured, **prompt_of(products, medians)}
    return rates


def random_model(checkpoint: Checkpoint, device: str) -> Any:
    """The checkpoint's shapes in BF16; speed does not depend on the weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCAB_SIZE, hidden_size=checkpoint.hidden, intermediate_size=checkpoint.ffn,
        num_hidden_layers=checkpoint.num_layers, num_attention_heads=checkpoint.num_query_heads,
        num_key_value_heads=NUM_KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=checkpoint.context,
        rms_norm_eps=RMS_NORM_EPSILON, rope_parameters={"rope_theta": checkpoint.rope_theta, "rope_type": "default"},
        tie_word_embeddings=checkpoint.tied_head, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return Qwen3ForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


@dataclasses.dataclass
class TransformersPeer:
    """A model of Transformers as people run it fast: a prompt in one call, and decoding in a compiled step on a static
    cache (CUDA graphs) or, for comparison, step by step without either."""

    model: Any
    device: str
    repetitions: int

    def timed(self, work: Callable[[], Any]) -> list[float]:
        seconds = []
        for _ in range(self.repetitions + 1):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def prompt(self, num_tokens: int) -> torch.Tensor:
        return torch.randint(0, 151_643, (1, num_tokens), device=self.device)

    def prefill(self, num_tokens: int) -> dict[str, Any]:
        ids = self.prompt(num_tokens)
        seconds = self.timed(lambda: self.model(ids, logits_to_keep=1, use_cache=True))
        return {"kind": "prefill", "tokens": num_tokens, "mode": "eager",
                "tokens_per_second": spread([num_tokens / one for one in seconds])}

    def decode(self, depth: int, steps: int, *, compiled: bool) -> dict[str, Any]:
        """Each repetition fills the cache with `depth` tokens first; only the steps are timed."""
        from transformers import DynamicCache, StaticCache

        config = self.model.config
        step = self.model
        if compiled:
            step = torch.compile(self.model.forward, mode="reduce-overhead", fullgraph=True)
            cache = StaticCache(config, max_cache_len=depth + steps)
        seconds = []
        warm_ups = 2 if compiled else 1  # one compiles, one records the graphs
        for _ in range(self.repetitions + warm_ups):
            if compiled:
                cache.reset()  # the same memory: graphs hold its addresses
            else:
                cache = DynamicCache(config=config)
            seconds.append(self.timed_steps(step, cache, depth, steps))
        return {"kind": "decode", "depth": depth, "batch": 1, "steps": steps,
                "mode": "compiled, static cache" if compiled else "eager",
                "tokens_per_second": spread([steps / one for one in seconds[warm_ups:]])}

    def timed_steps(self, step: Callable[..., Any], cache: Any, depth: int, steps: int) -> float:
        token = self.model(self.prompt(depth), past_key_values=cache, logits_to_keep=1).logits[:, -1:].argmax(-1)
        self.wait()
        start = time.perf_counter()
        for index in range(steps):
            torch.compiler.cudagraph_mark_step_begin()
            position = torch.full((1, 1), depth + index, device=self.device)
            logits = step(token, past_key_values=cache, position_ids=position, logits_to_keep=1).logits
            token = logits[:, -1:].argmax(-1).clone()  # a graph's output is written over by the next replay
        self.wait()
        return time.perf_counter() - start


def transformers_figures(checkpoint: Checkpoint, repetitions: int, device: str = "cuda", *, num_tokens: int = 2048,
                         depth: int = 128, steps: int = 64) -> list[dict[str, Any]]:
    """One prompt and one sequence decoding, eager and compiled."""
    with torch.inference_mode():
        peer = TransformersPeer(random_model(checkpoint, device), device, repetitions)
        figures = [peer.prefill(num_tokens), peer.decode(depth, steps, compiled=False),
                   peer.decode(depth, steps, compiled=True)]
    return [{"engine": "transformers", "checkpoint": checkpoint.id, "scheme": "bf16", **one} for one in figures]
