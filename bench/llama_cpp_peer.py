"""llama.cpp's own benchmarks, llama-bench and llama-batched-bench, on the cases of bench/cuda_roofline.py.

All layers on the GPU, flash attention on. A prompt in pieces of 512 (its default) and of 2,048 tokens inside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompt_products import spread

BACKEND = "CUDA"
DECODE_STEPS = 128
MANY = (8, 32, 64)
MANY_DEPTH = 1024
MANY_STEPS = 64


def output_of(command: list[str]) -> str:
    print("$", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}")
    return done.stdout


def mode_of(ubatch: int) -> str:
    return "default" if ubatch == 512 else f"ubatch {ubatch}"


def figure_of(run: dict[str, Any]) -> dict[str, Any]:
    """One object of llama-bench's list. samples_ts: tokens a second of each repetition."""
    provenance = {"version": f"{run['build_commit']} ({run['build_number']})", "backend": run["backends"],
                  "gpu": run["gpu_info"], "kv": f"{run['type_k']}, {run['type_v']}"}
    rate = {"tokens_per_second": spread(run["samples_ts"]), **provenance}
    if run["n_prompt"] > 0:
        return {"kind": "prefill", "tokens": run["n_prompt"], "mode": mode_of(run["n_ubatch"]), **rate}
    return {"kind": "decode", "depth": run["n_depth"], "batch": 1, "steps": run["n_gen"], "mode": "default", **rate}


def figures_of_batches(lines: list[str]) -> Iterator[dict[str, Any]]:
    """llama-batched-bench's lines of JSON, of one or several runs; others are its log."""
    rates: dict[tuple[int, int, int], list[float]] = {}
    for line in lines:
        if line.startswith("{"):
            run = json.loads(line)
            rates.setdefault((run["pp"], run["pl"], run["tg"]), []).append(run["speed_tg"])
    for (depth, batch, steps), found in rates.items():
        yield {"kind": "decode", "depth": depth, "batch": batch, "steps": steps, "mode": "default",
               "tokens_per_second": spread(found)}


class LlamaCppPeer:
    """Runs the programs in a folder on one model file; each group is one that cuda_roofline.py knows."""

    def __init__(self, programs: Path, model: Path, repetitions: int) -> None:
        self._programs, self._model, self._repetitions = programs, model, repetitions

    def _bench(self, *flags: str) -> list[dict[str, Any]]:
        command = [str(self._programs / "llama-bench"), "--model", str(self._model), "-ngl", "99", "-fa", "1",
                   "-r", str(self._repetitions), "-o", "json", *flags]
        runs = json.loads(output_of(command))
        for run in runs:
            if BACKEND not in run["backends"]:  # it falls back to the processor without a word
                raise SystemExit(f"{self._programs}: expected llama.cpp to run on {BACKEND}, found {run['backends']}")
        return [figure_of(run) for run in runs]

    def _prompt(self, tokens: int) -> list[dict[str, Any]]:
        return self._bench("-p", str(tokens), "-n", "0", "-b", "2048", "-ub", "512,2048")

    def _decode(self, depth: int) -> list[dict[str, Any]]:
        return self._bench("-p", "0", "-n", str(DECODE_STEPS), "-d", str(depth))

    def _many(self) -> list[dict[str, Any]]:
        cells = max(MANY) * (MANY_DEPTH + MANY_STEPS)
        command = [str(self._programs / "llama-batched-bench"), "--model", str(self._model), "-ngl", "99", "-fa", "on",
                   "-c", str(cells + max(MANY) * 256), "-b", "2048", "-ub", "2048", "-npp", str(MANY_DEPTH),
                   "-ntg", str(MANY_STEPS), "-npl", ",".join(map(str, MANY)), "--output-format", "jsonl"]
        return list(figures_of_batches(output_of(command).splitlines()))

    def figures(self, group: str) -> list[dict[str, Any]]:
        if group == "many":
            return self._many()
        tokens, depth = (2048, 128) if group == "short" else (16384, 16384)
        return [*self._prompt(tokens), *self._decode(depth)]
