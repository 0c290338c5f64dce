"""The matrix products that a prompt consists of, and what it would take if it were nothing else."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from typing import Any

from provenance import ROOT

sys.path.append(str(ROOT))

from tools.checkpoints import Checkpoint


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


@dataclasses.dataclass(frozen=True)
class Product:
    """num_tokens rows of `columns` activations with a matrix [rows][columns]."""

    name: str
    num_tokens: int
    rows: int
    columns: int
    count: int = 1  # how many of them a prompt takes

    @property
    def operations(self) -> int:
        return 2 * self.num_tokens * self.rows * self.columns


def products_of(checkpoint: Checkpoint, num_tokens: int) -> list[Product]:
    """The projections, those of one input side by side as engines run them."""
    layers = checkpoint.num_layers
    query, kv = checkpoint.query_width, checkpoint.kv_width
    return [
        Product("query, key, value", num_tokens, query + 2 * kv, checkpoint.hidden, layers),
        Product("output", num_tokens, checkpoint.hidden, query, layers),
        Product("gate, up", num_tokens, 2 * checkpoint.ffn, checkpoint.hidden, layers),
        Product("down", num_tokens, checkpoint.hidden, checkpoint.ffn, layers),
    ]


def prompt_of(products: list[Product], rates: list[float]) -> dict[str, Any]:
    """A prompt that is nothing but these products, each at its rate in operations a second."""
    seconds = sum(one.operations * one.count / rate for one, rate in zip(products, rates, strict=True))
    num_tokens = products[0].num_tokens
    return {"num_tokens": num_tokens, "products_seconds": seconds,
            "operations_per_second": sum(one.operations * one.count for one in products) / seconds,
            "tokens_per_second": num_tokens / seconds}
