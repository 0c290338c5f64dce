#!/usr/bin/env python3
"""Kipp's tokenizer against Hugging Face `tokenizers`, one thread each, alternated in one run.

The text: the golden texts drawn with a seed until they hold 10 MB. Both encode it as separate texts and as one text,
parsing added tokens; the ids must be equal. `make bench` runs it; by itself:

    python bench/tokenizer_vs_huggingface.py --bench build/release/tests/tokenizer/tokenizer_bench \\
        --encoder build/release/tests/tokenizer/tokenizer_encode_lines \\
        --tokenizer-json build/release/tests/tokenizer/tokenizer.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# One thread: the package reads these when it is imported.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers
from provenance import ROOT, hand_out, machine, source


def draw_texts(seed: int, num_bytes: int) -> list[str]:
    golden = (ROOT / "tests" / "golden" / "tokenizer.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in golden]
    rng = random.Random(seed)
    drawn: list[str] = []
    size = 0
    while size < num_bytes:
        rng.shuffle(texts)
        for text in texts:
            drawn.append(text)
            size += len(text.encode())
    return drawn


def time_kipp(bench: Path, path: Path) -> dict[str, float]:
    """One timed run of each form; the process start and the vocabulary are outside the times."""
    result = subprocess.run([bench, "--repeats", "1", path], capture_output=True, text=True, check=True)
    report = json.loads(result.stdout)
    return {
        "separate": report["file"]["separate"]["median_ms"],
        "joined": report["file"]["joined"]["median_ms"],
        "separate_ids": report["file"]["separate_ids"],
        "joined_ids": report["file"]["joined_ids"],
        "compiler": report["compiler"],
    }


def time_huggingface(tokenizer: tokenizers.Tokenizer, texts: list[str], joined: str) -> dict[str, float]:
    start = time.perf_counter()
    separate_ids = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
    middle = time.perf_counter()
    joined_ids = len(tokenizer.encode(joined, add_special_tokens=False).ids)
    end = time.perf_counter()
    return {
        "separate": (middle - start) * 1e3,
        "joined": (end - middle) * 1e3,
        "separate_ids": separate_ids,
        "joined_ids": joined_ids,
    }


def check_ids(encoder: Path, tokenizer: tokenizers.Tokenizer, texts: list[str]) -> None:
    lines = "".join(text.encode().hex() + "\n" for text in texts)
    result = subprocess.run([encoder], input=lines, capture_output=True, text=True, check=True)
    for text, line in zip(texts, result.stdout.splitlines(), strict=True):
        if line.split(";")[0] != " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids)):
            raise SystemExit(f"different ids for {text[:80]!a}")


def summarise(kipp: list[dict[str, float]], reference: list[dict[str, float]], num_bytes: int) -> dict[str, object]:
    summary: dict[str, object] = {}
    for form in ("separate", "joined"):
        kipp_ms = statistics.median(run[form] for run in kipp)
        reference_ms = statistics.median(run[form] for run in reference)
        summary[form] = {
            "kipp_ms": [round(run[form], 2) for run in kipp],
            "huggingface_ms": [round(run[form], 2) for run in reference],
            "kipp_megabytes_per_second": round(num_bytes / kipp_ms / 1e3, 2),
            "huggingface_megabytes_per_second": round(num_bytes / reference_ms / 1e3, 2),
            "ratio_of_medians": round(reference_ms / kipp_ms, 2),
        }
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, required=True, help="the tokenizer_bench executable (release build)")
    parser.add_argument("--encoder", type=Path, required=True, help="the tokenizer_encode_lines executable")
    parser.add_argument("--tokenizer-json", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=10_000_000)
    parser.add_argument("--output", type=Path, help="write the record to this file (default: print it)")
    arguments = parser.parse_args()
    texts = draw_texts(arguments.seed, arguments.bytes)
    joined = "".join(texts)
    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.tokenizer_json))
    check_ids(arguments.encoder, tokenizer, texts[:2000])
    kipp: list[dict[str, float]] = []
    reference: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        for _ in range(arguments.runs):
            kipp.append(time_kipp(arguments.bench, path))
            reference.append(time_huggingface(tokenizer, texts, joined))
        shapes = json.loads(subprocess.run([arguments.bench], capture_output=True, text=True, check=True).stdout)
    for mine, theirs in zip(kipp, reference, strict=True):
        if any(mine[key] != theirs[key] for key in ("separate_ids", "joined_ids")):
            raise SystemExit(f"different numbers of ids: {mine} {theirs}")
    num_bytes = len(joined.encode())
    report = {
        "protocol": "golden texts shuffled by the seed; one thread; runs alternated; medians of wall time; vocabulary "
        "loading outside; Hugging Face keeps its own cache of words, Kipp has none",
        "seed": arguments.seed,
        "bytes": num_bytes,
        "texts": len(texts),
        "runs": arguments.runs,
        "machine": machine(),
        "versions": {
            "tokenizers": tokenizers.__version__,
            "python": platform.python_version(),
            "compiler": kipp[0]["compiler"],
        },
        **source(),
        "results": summarise(kipp, reference, num_bytes),
        "kipp_shapes": shapes,
    }
    hand_out(report, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
