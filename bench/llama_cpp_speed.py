#!/usr/bin/env python3
"""One timed run of llama.cpp, of one case as `kipp bench` has them, after one run that is not timed.

Through the library of the llama-cpp-python package and the calls of llama.cpp's own llama-bench and
llama-batched-bench: llama_decode with logits of the last token of a prompt, or of every sequence that decodes, then
llama_synchronize. Prints one JSON object. bench/kipp_vs_llama_cpp.py runs it; by itself:

    python bench/llama_cpp_speed.py --model build/interchange/demo.gguf --threads 2 --prefill 512
    python bench/llama_cpp_speed.py --model build/interchange/demo.gguf --threads 2 --decode 64 --depth 16 --batch 8 \\
        --load-mode mmap --flash-attention off
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llama_cpp

UBATCH = 512  # llama-bench's default
MAX_TOKENS = 2048  # of one llama_decode; llama-bench's default
LOAD_MODES = {"none": llama_cpp.LLAMA_LOAD_MODE_NONE, "mmap": llama_cpp.LLAMA_LOAD_MODE_MMAP}
FLASH_ATTENTION = {
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


@llama_cpp.llama_log_callback
def keep_quiet(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    """Its log tells nothing that the record needs."""


def raise_unless(condition: object, what: str) -> None:
    if not condition:
        raise SystemExit(f"llama_cpp_speed.py: {what}")


class Engine:
    def __init__(self, arguments: argparse.Namespace, positions: int) -> None:
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(keep_quiet, ctypes.c_void_p(0))
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.load_mode = LOAD_MODES[arguments.load_mode]
        self.model = llama_cpp.llama_model_load_from_file(str(arguments.model).encode(), parameters)
        raise_unless(self.model, f"{arguments.model}: llama.cpp cannot load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = arguments.batch * (-(-positions // 256) * 256)
        context.n_batch = MAX_TOKENS
        context.n_ubatch = UBATCH
        context.n_seq_max = arguments.batch
        context.n_threads = context.n_threads_batch = arguments.threads
        context.flash_attn_type = FLASH_ATTENTION[arguments.flash_attention]
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        raise_unless(self.context, "llama.cpp cannot make a context")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(MAX_TOKENS, 0, 1)
        self.num_tokens = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """Entries: token, position, sequence, whether its logits are wanted."""
        self.batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        code = llama_cpp.llama_decode(self.context, self.batch)
        raise_unless(code == 0, f"llama_decode returned {code}")

    def prompt(self, tokens: list[int], sequence: int) -> None:
        for begin in range(0, len(tokens), MAX_TOKENS):
            piece = tokens[begin : begin + MAX_TOKENS]
            last = len(tokens) - 1
            self.decode([(token, begin + i, sequence, begin + i == last) for i, token in enumerate(piece)])

    def synchronize(self) -> None:
        llama_cpp.llama_synchronize(self.context)

    def forget_from(self, position: int) -> None:
        done = llama_cpp.llama_memory_seq_rm(self.memory, -1, position, -1)
        raise_unless(done, f"llama.cpp cannot forget positions from {position} on")


def run_prefill(engine: Engine, tokens: list[int]) -> float:
    start = time.perf_counter()
    engine.prompt(tokens, 0)
    engine.synchronize()
    seconds = time.perf_counter() - start
    engine.forget_from(0)
    return seconds


def run_decode(engine: Engine, tokens: list[list[int]], depth: int) -> float:
    start = time.perf_counter()
    for step in range(len(tokens[0])):
        engine.decode([(ids[step], depth + step, sequence, True) for sequence, ids in enumerate(tokens)])
        engine.synchronize()
    seconds = time.perf_counter() - start
    engine.forget_from(depth)
    return seconds


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The seconds of the second of two equal runs."""
    rng = random.Random(arguments.seed)
    positions = arguments.prefill or arguments.depth + arguments.decode
    engine = Engine(arguments, positions)
    tokens = [[rng.randrange(engine.num_tokens) for _ in range(positions)] for _ in range(arguments.batch)]
    if arguments.prefill:
        run_prefill(engine, tokens[0])
        seconds = run_prefill(engine, tokens[0])
    else:
        for sequence, ids in enumerate(tokens):
            engine.prompt(ids[: arguments.depth], sequence)
        rest = [ids[arguments.depth :] for ids in tokens]
        run_decode(engine, rest, arguments.depth)
        seconds = run_decode(engine, rest, arguments.depth)
    return {
        "seconds": seconds,
        "llama_cpp": llama_cpp.llama_version().decode(),
        "llama_cpp_python": version("llama-cpp-python"),
        "system": llama_cpp.llama_print_system_info().decode().strip(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="an export of tools/export_llama_cpp.py")
    parser.add_argument("--threads", type=int, required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prefill", type=int, default=0, metavar="N", help="tokens of a prompt")
    what.add_argument("--decode", type=int, default=0, metavar="N", help="steps of decoding")
    parser.add_argument("--depth", type=int, default=16, help="tokens held before the first step")
    parser.add_argument("--batch", type=int, default=1, help="sequences that decode together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load-mode", choices=LOAD_MODES, default="none", help="none: read into memory and repacked")
    parser.add_argument("--flash-attention", choices=FLASH_ATTENTION, default="on")
    arguments = parser.parse_args()
    if arguments.prefill:
        arguments.batch, arguments.depth = 1, 0
    print(json.dumps(measure(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
