#!/usr/bin/env python3
"""Kipp and llama.cpp on the same weights, alternated in one run, each beside what the machine could do at that moment.

For every case: Kipp, then llama.cpp in each of its ways, and so on; every run is a process of its own that warms up
once and is timed once. Kipp runs once more at the end, so that every run of llama.cpp has one of Kipp's probes of the
machine before and after it. Ways of llama.cpp: as people run it (file mapped, flash attention), and those that were
better somewhere. The export holds the artifact's weights (tools/export_llama_cpp.py). In the environment that
scripts/setup.sh interchange makes, on a machine with nothing else to do:

    python -m tools.export_llama_cpp --model models/kipp-kipp-demo-bf16.gguf --output build/interchange/demo.gguf
    build/interchange-venv/bin/python bench/kipp_vs_llama_cpp.py --kipp build/release/bin/kipp \\
        --model models/kipp-kipp-demo-bf16.gguf --export build/interchange/demo.gguf --prefill 512 --depth 16,1024
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import ROOT, hand_out, machine, source

WORKER = ROOT / "bench" / "llama_cpp_speed.py"
MAX_LOAD = 0.5
WAYS = {  # load mode, flash attention
    "mapped, flash attention": ("mmap", "on"),
    "loaded, flash attention": ("none", "on"),
    "loaded, no flash attention": ("none", "off"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    prefill: int = 0
    decode: int = 0
    depth: int = 0
    batch: int = 1

    @property
    def name(self) -> str:
        return f"prefill {self.prefill}" if self.prefill else f"decode at {self.depth}, batch {self.batch}"

    @property
    def num_tokens(self) -> int:
        return self.prefill or self.decode * self.batch

    def kipp_flags(self) -> list[str]:
        if self.prefill:
            return ["--prefill", str(self.prefill), "--decode", "0"]
        return ["--prefill", "0", "--decode", str(self.decode), "--depth", str(self.depth), "--batch", str(self.batch)]

    def llama_flags(self) -> list[str]:
        if self.prefill:
            return ["--prefill", str(self.prefill)]
        return ["--decode", str(self.decode), "--depth", str(self.depth), "--batch", str(self.batch)]


def run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def spread(values: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


def limit(case: Case, probe: dict[str, float]) -> float:
    """Bytes per second of mapped pages, or operations per second of the best way to multiply BF16."""
    if not case.prefill:
        return probe["read_mapped_bytes_per_second"]
    tiles = probe["bf16_tile_operations_per_second"]
    return tiles or max(probe["bf16_dot_operations_per_second"], probe["fp32_operations_per_second"])


def figures(case: Case, seconds: list[float], work: float, probes: list[tuple[float, float]]) -> dict[str, Any]:
    """Rates and shares; probes: the limit before and after each run, of which the larger one counts."""
    steps = 1 if case.prefill else case.decode
    shares = [work * steps / one / max(around) for one, around in zip(seconds, probes, strict=True)]
    return {"tokens_per_second": spread([case.num_tokens / one for one in seconds]), "share_of_limit": spread(shares)}


def compare(case: Case, kipp: list[dict[str, Any]], llama: dict[str, list[float]]) -> dict[str, Any]:
    """kipp: one case of each `kipp bench`, one more than there are runs of llama.cpp in each way (its seconds)."""
    work = kipp[0]["operations"] if case.prefill else kipp[0]["bytes_per_step"]
    limits = [(limit(case, one["probes"][0]), limit(case, one["probes"][-1])) for one in kipp]
    own = [case.num_tokens / one["tokens_per_second"]["all"][0] for one in kipp]
    between = [(before[1], after[0]) for before, after in itertools.pairwise(limits)]
    ways = {way: figures(case, seconds, work, between) for way, seconds in llama.items()}
    best = max(ways, key=lambda way: ways[way]["tokens_per_second"]["median"])
    ratios = [theirs / mine for mine, theirs in zip(own[:-1], llama[best], strict=True)]
    return {
        "case": case.name,
        **{key: value for key, value in dataclasses.asdict(case).items() if value},
        "work": work,
        "kipp": figures(case, own, work, limits),
        "llama_cpp": ways,
        "best_of_llama_cpp": best,
        "kipp_over_best": spread(ratios),
        "probes": [one["probes"] for one in kipp],
    }


def kipp_command(arguments: argparse.Namespace, case: Case) -> list[str]:
    return [str(arguments.kipp), "bench", "--model", str(arguments.model), "--backend", arguments.backend, "--threads",
            str(arguments.threads), "--repetitions", "1", "--allow-synthetic", "--json", *case.kipp_flags()]


def llama_command(arguments: argparse.Namespace, case: Case, way: str) -> list[str]:
    load_mode, flash_attention = WAYS[way]
    return [sys.executable, str(arguments.llama_worker), "--model", str(arguments.export), "--threads",
            str(arguments.threads), "--load-mode", load_mode, "--flash-attention", flash_attention, *case.llama_flags()]


def measure(arguments: argparse.Namespace, case: Case) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The comparison, and what the last run of either engine says about itself."""
    own, theirs = [], {way: [] for way in WAYS}
    answer: dict[str, Any] = {}
    for alternation in range(arguments.alternations):
        own.append(run(kipp_command(arguments, case)))
        for way, seconds in theirs.items():
            answer = run(llama_command(arguments, case, way))
            seconds.append(answer["seconds"])
        print(f"{case.name}: {alternation + 1} of {arguments.alternations}", file=sys.stderr)
    own.append(run(kipp_command(arguments, case)))
    comparison = compare(case, [one["cases"][0] for one in own], theirs)
    comparison["kipp_start"] = {key: spread([one["start"][key]["median"] for one in own])
                                for key in ("open_ms", "first_token_ms")}
    comparison["kipp_memory"] = own[-1]["memory"]
    return comparison, own[-1], answer


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    prompts = [Case(prefill=tokens) for tokens in arguments.prefill if tokens]
    decodes = [Case(decode=arguments.decode, depth=depth, batch=batch)
               for depth in arguments.depth for batch in arguments.batch if arguments.decode]
    return prompts + decodes


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", type=Path, required=True, help="the kipp program (release build)")
    parser.add_argument("--model", type=Path, required=True, help="the artifact")
    parser.add_argument("--export", type=Path, required=True, help="the same as llama.cpp reads it")
    parser.add_argument("--backend", default="cpu", help="Kipp's (default: cpu)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both (default: all)")
    parser.add_argument("--prefill", type=numbers, default=[512], metavar="N,N", help="prompts; 0: none")
    parser.add_argument("--decode", type=int, default=64, metavar="N", help="steps of decoding; 0: none")
    parser.add_argument("--depth", type=numbers, default=[16], metavar="N,N", help="tokens held when decoding")
    parser.add_argument("--batch", type=numbers, default=[1], metavar="N,N", help="sequences that decode together")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--llama-worker", type=Path, default=WORKER, help="program that runs llama.cpp once")
    parser.add_argument("--output", type=Path, help="write the record to this file (default: print it)")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    cases = cases_of(arguments)
    if not cases or arguments.alternations < 1:
        raise SystemExit("nothing to measure: --prefill or --decode, and --alternations, must be at least 1")
    started = machine()
    if (load := started["load_average"][0]) > MAX_LOAD:
        print(f"warning: load average {load:.1f}: these figures will not be those of an idle machine", file=sys.stderr)
    measured = [measure(arguments, case) for case in cases]
    _, kipp, llama = measured[-1]
    version = subprocess.run([arguments.kipp, "--version"], capture_output=True, text=True, check=True).stdout
    report = {
        "protocol": "for every case Kipp and each way of llama.cpp in turn, one process a run, one run to warm up and "
        "one that is timed; shares: bytes (weights and KV of a step) or operations (of a prompt) per second, of the "
        "larger of the probes before and after the run; ratios: of neighbouring runs, against the way with the best "
        "median",
        "alternations": arguments.alternations,
        "machine": {**started, "load_average_after": os.getloadavg()},
        "versions": {
            "kipp": version.splitlines(),
            **{key: llama[key] for key in ("llama_cpp", "llama_cpp_python", "system") if key in llama},
        },
        "model": {
            **{key: kipp[key] for key in ("model", "checkpoint", "scheme", "synthetic", "header_sha256")},
            "export": arguments.export.name,
        },
        "flags": {
            "threads": arguments.threads,
            "kipp": {"backend": kipp["backend"], "isa": kipp["isa"]},
            "llama_cpp": {way: {"load_mode": mode, "flash_attention": flash} for way, (mode, flash) in WAYS.items()},
        },
        **source(),
        "results": [comparison for comparison, _, _ in measured],
    }
    hand_out(report, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
