#!/usr/bin/env python3
"""kipp serve under load: mixed requests with bad bodies, cancels, disconnects, half-closed and slow clients.

Afterwards nothing may be left: every block of the KV pool is free (/metrics says so, and a request that needs all of
them is served), memory is flat, and every answer was whole or ended as the protocol says. Also measured: what idle and
slow connections cost active streams, /health during prefills, prompts that are shared, and the first token of a prompt
that was seen before.

    python bench/server_load.py --kipp build/release/bin/kipp --model models/kipp-kipp-demo-bf16.gguf
    python bench/server_load.py --kipp build/release/bin/kipp --model build/twins/kipp-qwen3-4b-bf16.gguf \\
        --requests 0 --prompt-tokens 4000 --kv-blocks 2048 --serve-flag=--backend=cuda
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import random
import statistics
import time
from pathlib import Path
from typing import Any

import load_clients as clients
from load_clients import Target
from provenance import gpu_facts, hand_out, machine, source
from server_process import serving

CONTEXT = 2048  # the demo's
BLOCK = 32
MEGABYTE = 1 << 20
READY_SECONDS = 180
PATIENCE = 300  # seconds for one client of the storm, whose requests wait for many others
# As many blocks as one context takes: one request can ask for them all, and until then they are always short.
STORM_FLAGS = ("--kv-blocks", str(CONTEXT // BLOCK), "--max-waiting", "100000")


def resident_bytes(pid: int) -> int:
    """Of the process itself: mapped files do not count."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


async def used_blocks(target: Target) -> int:
    """KV blocks that sequences hold, as the server counts them."""
    page = (await clients.ask(target, "/metrics")).body.decode()
    prefix = 'kipp_kv_blocks{state="used"} '
    return int(next(line.removeprefix(prefix) for line in page.splitlines() if line.startswith(prefix)))


async def nobody_holds_a_block(target: Target) -> bool:
    """Clients that left are noticed within a step or two: given ten seconds."""
    deadline = time.monotonic() + 10
    while await used_blocks(target) > 0:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def pool_is_whole(target: Target) -> bool:
    """No block is used, and one request gets those of a whole context: for a lost one it would wait for ever."""
    if not await nobody_holds_a_block(target):
        return False
    ids = [1000 + i % 997 for i in range(CONTEXT - 1)]
    body = {"prompt": ids, "max_tokens": 1, "cache_salt": str(time.monotonic())}
    answer = await asyncio.wait_for(clients.ask(target, "/v1/completions", body), timeout=60)
    whole = answer.status == 200 and answer.json["usage"]["completion_tokens"] == 1
    return whole and await nobody_holds_a_block(target)


async def mixed(target: Target, pid: int, num_requests: int, concurrency: int, seed: int) -> dict[str, Any]:
    """The storm. A fault is what no well-behaved server does; the first ones are kept."""
    draw = random.Random(seed)
    kinds = [draw.choice(clients.KINDS) for _ in range(num_requests)]
    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    memory: list[int] = []
    queue = collections.deque(enumerate(kinds))

    async def work() -> None:
        while queue:
            number, kind = queue.popleft()
            if number % max(1, num_requests // 20) == 0:
                memory.append(resident_bytes(pid))
            try:
                own_draw = random.Random(seed * 1_000_003 + number)
                outcome = await asyncio.wait_for(kind(target, own_draw), timeout=PATIENCE)
            except Exception as error:
                outcome = f"fault: {kind.__name__}: {type(error).__name__}: {error}"
            if outcome.startswith("fault"):
                faults.append(f"{number}: {outcome}"[:300])
            outcomes[f"{kind.__name__}: {outcome[:40]}"] += 1

    begin = time.monotonic()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    half = len(memory) // 2
    return {
        "requests": num_requests,
        "concurrency": concurrency,
        "seconds": round(time.monotonic() - begin, 1),
        "outcomes": dict(sorted(outcomes.items())),
        "faults": faults[:20],
        "num_faults": len(faults),
        "resident_mib": [round(value / MEGABYTE, 1) for value in memory],
        "growth_of_the_second_half_mib": round((max(memory[half:]) - max(memory[:half])) / MEGABYTE, 1),
    }


async def company(target: Target, num_streams: int, num_idle: int, num_slow: int, num_tokens: int) -> dict[str, Any]:
    """The time between tokens of active streams: alone, and beside idle and slow connections, by turns."""
    times: dict[str, list[float]] = {"alone": [], "beside": []}
    for turn in range(6):
        beside = turn % 2 == 1
        async with contextlib.AsyncExitStack() as stack:
            if beside:
                await stack.enter_async_context(clients.idle_connections(target, num_idle))
                await stack.enter_async_context(clients.slow_clients(target, num_slow))
            streams = [clients.timed_stream(target, clients.story(i), num_tokens) for i in range(num_streams)]
            gaps = [gap for found in await asyncio.gather(*streams) for gap in found.gaps]
        times["beside" if beside else "alone"].append(statistics.mean(gaps) * 1e3)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "streams": num_streams,
        "idle_connections": num_idle,
        "slow_clients": num_slow,
        "mean_ms_between_tokens": {name: [round(value, 3) for value in values] for name, values in times.items()},
        "ratio_of_medians": round(medians["beside"] / medians["alone"], 3),
    }


async def health_during_prefill(target: Target, num_prompts: int, num_tokens: int) -> dict[str, Any]:
    async def prefill(number: int) -> None:
        ids = [2000 + (number * 131 + i * 7) % 9973 for i in range(num_tokens)]
        await clients.ask(target, "/v1/completions", {"prompt": ids, "max_tokens": 1, "cache_salt": f"h{number}"})

    prefills = asyncio.gather(*(prefill(number) for number in range(num_prompts)))
    times = []
    while not prefills.done():
        begin = time.perf_counter()
        answer = await clients.ask(target, "/health")
        times.append((time.perf_counter() - begin) * 1e3)
        assert answer.status == 200
        await asyncio.sleep(0.01)
    await prefills
    times.sort()
    return {
        "prompts": num_prompts,
        "tokens_of_each": num_tokens,
        "samples": len(times),
        "median_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[int(len(times) * 0.99)], 2),
        "worst_ms": round(times[-1], 2),
    }


async def shared_prompt(target: Target, num_requests: int, num_tokens: int) -> dict[str, Any]:
    """Requests that come together and begin with the same system prompt."""
    system = "word " * (num_tokens - 5)
    salt = str(time.monotonic())

    async def one(number: int) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Say {number}."}]
        body = {"messages": messages, "max_tokens": 2, "cache_salt": salt}
        answer = await clients.ask(target, "/v1/chat/completions", body)
        return answer.json["usage"]

    usages = await asyncio.gather(*(one(number) for number in range(num_requests)))
    prompts = [usage["prompt_tokens"] for usage in usages]
    evaluated = [u["prompt_tokens"] - u["prompt_tokens_details"]["cached_tokens"] for u in usages]
    return {
        "requests": num_requests,
        "prompt_tokens_of_each": max(prompts),
        "prompt_tokens": sum(prompts),
        "evaluated_tokens": sum(evaluated),
        "evaluated_of_the_first": max(evaluated),
        "evaluated_of_the_others_at_most": sorted(evaluated)[-2],
    }


async def repeated_prompt(target: Target, num_tokens: int, repetitions: int) -> dict[str, Any]:
    """Time to the first token of a prompt of ids, the first time and again."""
    first, again = [], []
    for repetition in range(repetitions):
        ids = [3000 + (repetition * 577 + i * 11) % 9973 for i in range(num_tokens)]
        first.append((await clients.timed_stream(target, ids, 2)).first * 1e3)
        again += [(await clients.timed_stream(target, ids, 2)).first * 1e3 for _ in range(3)]
    return {
        "prompt_tokens": num_tokens,
        "first_ms": [round(value, 2) for value in first],
        "again_ms": [round(value, 2) for value in again],
        "times_shorter": round(statistics.median(first) / statistics.median(again), 1),
    }


async def measure(target: Target, num_idle: int, num_slow: int, prompt_tokens: int) -> dict[str, Any]:
    return {
        "repeated_prompt": await repeated_prompt(target, prompt_tokens, 3),
        "shared_prompt": await shared_prompt(target, 64, 1000),
        "health_during_prefill": await health_during_prefill(target, 8, prompt_tokens),
        "company": await company(target, 32, num_idle, num_slow, 64),
    }


async def storm(target: Target, pid: int, num_requests: int, concurrency: int, seed: int) -> dict[str, Any]:
    await mixed(target, pid, max(32, num_requests // 10), concurrency, seed + 1)  # until memory is what it will be
    results = await mixed(target, pid, num_requests, concurrency, seed)
    return results | {"pool_is_whole_afterwards": await pool_is_whole(target)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=10_000,
                        help="of the storm, which is made for the demo's context; 0: none")
    parser.add_argument("--prompt-tokens", type=int, default=CONTEXT - 48,
                        help="of the prompt that comes again, and of those beside /health (default: 2000)")
    parser.add_argument("--kv-blocks", type=int, default=512, help="of the server that is measured")
    parser.add_argument("--serve-flag", action="append", default=[], metavar="FLAG",
                        help="one more for kipp serve, such as --serve-flag=--threads=1")
    parser.add_argument("--concurrency", type=int, default=96)
    parser.add_argument("--idle", type=int, default=1000, help="idle connections beside the streams")
    parser.add_argument("--slow", type=int, default=200, help="slow clients beside the streams")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the record there")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    words = [str(arguments.kipp), "serve", "--model", str(arguments.model), "--allow-synthetic", "--port", "{port}",
             *arguments.serve_flag]
    with serving([*words, "--kv-blocks", str(arguments.kv_blocks)], READY_SECONDS, must_end=True) as server:
        results = asyncio.run(measure(server.target, arguments.idle, arguments.slow, arguments.prompt_tokens))
    if arguments.requests > 0:
        with serving([*words, *STORM_FLAGS], READY_SECONDS, must_end=True) as server:
            mixed_requests = storm(server.target, server.process.pid, arguments.requests, arguments.concurrency,
                                   arguments.seed)
            results["mixed"] = asyncio.run(mixed_requests)
    report = {"what": __doc__.splitlines()[0], "machine": machine(), "gpu": gpu_facts(0), "source": source(),
              "model": arguments.model.name, "serve_flags": arguments.serve_flag, "kv_blocks": arguments.kv_blocks,
              "seed": arguments.seed, "results": results}
    hand_out(report, arguments.output)
    stormed = results.get("mixed")
    if stormed and (stormed["num_faults"] > 0 or not stormed["pool_is_whole_afterwards"]):
        raise SystemExit("there were faults")


if __name__ == "__main__":
    main()
