#!/usr/bin/env python3
"""The oracle on the bundled demo: prompt and decode rate, and the time until an artifact is open.

Each run starts the program anew. Rates are those of the summary that `kipp run` prints: positions per second of the
evaluation alone, without opening the artifact. The stop tokens are banned, so that every run decodes the same number.

    python bench/demo_speed.py --kipp build/release/bin/kipp --model models/kipp-kipp-demo-bf16.gguf
"""

from __future__ import annotations

import argparse
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from provenance import hand_out, machine, source

SUMMARY = re.compile(rb"^(prompt|decode): (\d+) tokens in [\d.]+ s \(([\d.]+) tok/s\)$", re.MULTILINE)
STOP_TOKENS = (151643, 151645)
SENTENCE = "One day a lazy baker named Max lost his coin near a meadow and could not find it anywhere. "


def run_kipp(arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(arguments, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr.decode()}")
    return done


def rates(kipp: Path, model: Path, prompt: str, decode: int) -> dict[str, float]:
    bans = [word for token in STOP_TOKENS for word in ("--logit-bias", f"{token}=-inf")]
    command = [str(kipp), "run", "--model", str(model), "--greedy", "--decode", str(decode), *bans, prompt]
    lines = SUMMARY.findall(run_kipp(command).stderr)
    found = {name.decode(): (int(tokens), float(rate)) for name, tokens, rate in lines}
    return {
        "prompt_tokens": found["prompt"][0],
        "prompt_tokens_per_second": found["prompt"][1],
        "decode_tokens": found["decode"][0],
        "decode_tokens_per_second": found["decode"][1],
    }


def wall_ms(arguments: list[str]) -> float:
    start = time.perf_counter()
    run_kipp(arguments)
    return (time.perf_counter() - start) * 1e3


def median_and_all(values: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(values), 2), "all": [round(value, 2) for value in values]}


def measure(kipp: Path, model: Path, runs: int, decode: int) -> dict[str, Any]:
    speeds = [rates(kipp, model, SENTENCE * 10, decode) for _ in range(runs)]
    result: dict[str, Any] = {key: speeds[0][key] for key in ("prompt_tokens", "decode_tokens")}
    for key in ("prompt_tokens_per_second", "decode_tokens_per_second"):
        result[key] = median_and_all([speed[key] for speed in speeds])
    start = [str(kipp), "--version"]
    opening = [str(kipp), "tokenize", "--model", str(model), "Hi"]
    pairs = [(wall_ms(start), wall_ms(opening)) for _ in range(runs)]
    result["process_start_ms"] = median_and_all([pair[0] for pair in pairs])
    result["open_artifact_and_tokenizer_ms"] = median_and_all([pair[1] - pair[0] for pair in pairs])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", type=Path, required=True, help="the kipp program (release build)")
    parser.add_argument("--model", type=Path, required=True, help="the demo's artifact")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--decode", type=int, default=64, help="tokens to generate in each run")
    parser.add_argument("--output", type=Path, help="write the record to this file (default: print it)")
    arguments = parser.parse_args()
    version = run_kipp([str(arguments.kipp), "--version"]).stdout.decode().splitlines()
    report = {
        "protocol": "one process a run, runs one after the other, medians; greedy, all processors; rates as the "
        "program reports them; opening = wall time of `kipp tokenize Hi` less that of `kipp --version`, alternated",
        "runs": arguments.runs,
        "machine": machine(),
        "versions": {"kipp": version, "python": platform.python_version()},
        "model": arguments.model.name,
        **source(),
        "results": measure(arguments.kipp, arguments.model, arguments.runs, arguments.decode),
    }
    hand_out(report, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
