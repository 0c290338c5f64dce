"""llama.cpp's own benchmarks, llama-bench and llama-batched-bench, on the cases of bench/cuda_roofline.py.

All layers on the GPU, flash attention on. A prompt in pieces of 512 (its default) and of 2,048 tokens inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompt_products import spread
from roofline_runs import Cases, run

BACKEND = "CUDA"
DECODE_STEPS = 128
STEPS_TOGETHER = 64


def mode_of(ubatch: int) -> str:
    return "default" if ubatch == 512 else f"ubatch {ubatch}"


def figure_of(one: dict[str, Any]) -> dict[str, Any]:
    """One object of llama-bench's list. samples_ts: tokens a second of each repetition."""
    provenance = {"version": f"{one['build_commit']} ({one['build_number']})", "backend": one["backends"],
                  "gpu": one["gpu_info"], "kv": f"{one['type_k']}, {one['type_v']}"}
    rate = {"tokens_per_second": spread(one["samples_ts"]), **provenance}
    if one["n_prompt"] > 0:
        return {"kind": "prefill", "tokens": one["n_prompt"], "mode": mode_of(one["n_ubatch"]), **rate}
    return {"kind": "decode", "depth": one["n_depth"], "batch": 1, "steps": one["n_gen"], "mode": "default", **rate}


def figures_of_batches(lines: list[str]) -> Iterator[dict[str, Any]]:
    """llama-batched-bench's lines of JSON, of one or several runs; others are its log."""
    rates: dict[tuple[int, int, int], list[float]] = {}
    for line in lines:
        if line.startswith("{"):
            one = json.loads(line)
            rates.setdefault((one["pp"], one["pl"], one["tg"]), []).append(one["speed_tg"])
    for (depth, batch, steps), found in rates.items():
        yield {"kind": "decode", "depth": depth, "batch": batch, "steps": steps, "mode": "default",
               "tokens_per_second": spread(found)}


class LlamaCppPeer:
    """Runs the programs in a folder on one model file."""

    def __init__(self, programs: Path, model: Path, repetitions: int) -> None:
        self._programs, self._model, self._repetitions = programs, model, repetitions

    def _bench(self, *flags: str) -> list[dict[str, Any]]:
        command = [str(self._programs / "llama-bench"), "--model", str(self._model), "-ngl", "99", "-fa", "1",
                   "-r", str(self._repetitions), "-o", "json", *flags]
        runs = json.loads(run(command))
        for one in runs:
            if BACKEND not in one["backends"]:  # it falls back to the processor without a word
                raise SystemExit(f"{self._programs}: expected llama.cpp to run on {BACKEND}, found {one['backends']}")
        return [figure_of(one) for one in runs]

    def _prompt(self, tokens: int) -> list[dict[str, Any]]:
        return self._bench("-p", str(tokens), "-n", "0", "-b", "2048", "-ub", "512,2048")

    def _decode(self, depth: int) -> list[dict[str, Any]]:
        return self._bench("-p", "0", "-n", str(DECODE_STEPS), "-d", str(depth))

    def _together(self, depth: int, batches: tuple[int, ...]) -> list[dict[str, Any]]:
        cells = max(batches) * (depth + STEPS_TOGETHER + 256)
        command = [str(self._programs / "llama-batched-bench"), "--model", str(self._model), "-ngl", "99", "-fa", "on",
                   "-c", str(cells), "-b", "2048", "-ub", "2048", "-npp", str(depth), "-ntg", str(STEPS_TOGETHER),
                   "-npl", ",".join(map(str, batches)), "--output-format", "jsonl"]
        return list(figures_of_batches(run(command).splitlines()))

    def figures(self, cases: Cases) -> list[dict[str, Any]]:
        prompt = self._prompt(cases.prefill) if cases.prefill > 0 else []
        alone = cases.batches == (1,)
        return [*prompt, *(self._decode(cases.depth) if alone else self._together(cases.depth, cases.batches))]
