#!/usr/bin/env python3
"""What a server makes of its engine: rounds of streams beside `kipp bench`, and goodput under requests at rising rates.

The server is `kipp serve`, or any program with OpenAI's /v1/completions and /health that a command line starts; client,
prompts and moments of arrival are the same for both (--seed). docs/benchmarks.md says what the figures mean.

    python bench/server_goodput.py --kipp build/release/bin/kipp --model models/kipp-kipp-demo-bf16.gguf
    python bench/server_goodput.py --parts open \\
        --peer-command "llama-server -m build/twins/llama-cpp.gguf --port {port} --parallel 64 -c 32768"
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import load_clients as clients
from goodput_figures import (
    Rates,
    arrivals,
    beside_the_engine,
    highest_good_rate,
    next_rate,
    open_loop_figures,
    percentile,
    prompt,
    round_figures,
)
from load_clients import Stream, Target
from provenance import gpu_facts, hand_out, machine, source
from server_process import Server, serving, without_folders, words_of
from stream_reading import Limits, Read, read_stream

MOST_STREAMS_OF_BENCH = 64
ROUND_SECONDS = 600  # for one round: a server that hangs ends the script
START_SECONDS = 0.05  # from a plan of arrivals to its beginning
PROTOCOL = {
    "all": "prompts of single-token words drawn from the seed, no two alike, each request on a connection of its own "
    "with temperature 0 and ignore_eos; times are those of one client process on the same machine, from before the "
    "connection is made; texts are parsed when all is over",
    "closed": "a round: N streams begin together; tokens a second of all of them between the moment when the last one "
    "has its first token and that when the first one ends; one round of N that is not counted, then the repetitions; "
    "a server of its own for each turn; beside it kipp bench, which decodes N sequences from as many tokens as a "
    "prompt has and for as many steps, before the first turn, between turns and after the last; ratio: the median of "
    "a turn's rounds over the mean of the two medians of kipp bench around it",
    "open": "rounds of the sizes `warm_up`; then for each rate Poisson arrivals for the window, whoever is "
    "still running; good: complete, first token and mean time of the others within the limits; goodput: good requests "
    "a second of the window; what is not complete when no limit can be met any more is cut; ttft: of all that were "
    "sent, null where too many had none; tpot: (end - first token) / (tokens - 1), of those that were complete; rates "
    "rise until the share of good requests falls below `collapse`, then the geometric mean of the highest good rate "
    "and the lowest that is not is tried `refinements` times; a rate is good with the share `enough`, and the highest "
    "good rate is the highest tried below the lowest that was not good",
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def body(seed: str, arguments: argparse.Namespace, num_tokens: int) -> dict[str, Any]:
    return {"prompt": prompt(seed, arguments.words), "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}


@contextlib.contextmanager
def client_share(figures: dict[str, Any]) -> Iterator[None]:
    """Notes how much of one processor the client takes: near 1, its times are not the server's."""
    wall, own = time.perf_counter(), time.process_time()
    yield
    figures["client_cpu_share"] = round((time.process_time() - own) / (time.perf_counter() - wall), 3)


# Rounds of streams.


async def round_of(target: Target, seed: str, streams: int, num_tokens: int, arguments: argparse.Namespace) \
        -> dict[str, Any]:
    bodies = [body(f"{seed}/{number}", arguments, num_tokens) for number in range(streams)]
    measured: dict[str, Any] = {}
    with client_share(measured):
        raw = await asyncio.gather(*(clients.streamed(target, one, ROUND_SECONDS) for one in bodies))
    return round_figures([read_stream(stream) for stream in raw]) | measured


async def turn_of_rounds(server: Server, turn: int, arguments: argparse.Namespace) -> dict[int, list[dict[str, Any]]]:
    """One round of each size to warm up, then the repetitions."""
    found = {}
    for streams in arguments.streams:
        rounds = [await round_of(server.target, f"{arguments.seed}/closed/{turn}/{streams}/{repetition}", streams,
                                 arguments.closed_tokens, arguments) for repetition in range(arguments.repetitions + 1)]
        server.check()
        found[streams] = rounds[1:]
        rates = [f"{one['tokens_per_second']:.1f}" if "tokens_per_second" in one else "-" for one in rounds[1:]]
        say(f"turn {turn + 1}, {streams} streams: {', '.join(rates)} tokens/s")
    return found


def engine_command(arguments: argparse.Namespace) -> list[str]:
    return [str(arguments.kipp), "bench", "--model", str(arguments.model), "--allow-synthetic", "--backend",
            arguments.backend, "--json", "--no-start", "--prefill", "0", "--decode", str(arguments.closed_tokens),
            "--depth", str(arguments.words), "--batch", ",".join(map(str, arguments.streams)),
            "--repetitions", str(arguments.repetitions), *arguments.kipp_flag, *arguments.bench_flag]


def run_engine(arguments: argparse.Namespace) -> dict[str, Any]:
    done = subprocess.run(engine_command(arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(engine_command(arguments))}\n{done.stderr}")
    found = json.loads(done.stdout)
    rates = {case["batch"]: case["tokens_per_second"]["median"] for case in found["cases"]}
    say(f"engine: {', '.join(f'{batch}: {rate:.1f}' for batch, rate in rates.items())} tokens/s")
    return found


def engine_figures(engine: list[dict[str, Any]], streams: int) -> list[dict[str, Any]]:
    """Of every run of kipp bench."""
    return [{key: case[key] for key in ("tokens_per_second", "ms_per_step")}
            for one in engine for case in one["cases"] if case["batch"] == streams]


def closed_loop(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    engine = [run_engine(arguments)] if arguments.kipp else []
    turns = []
    for turn in range(arguments.turns):
        with serving(server_words(arguments), arguments.ready_seconds) as server:
            turns.append(asyncio.run(turn_of_rounds(server, turn, arguments)))
        engine += [run_engine(arguments)] if arguments.kipp else []
    results = []
    for streams in arguments.streams:
        rounds = [turn[streams] for turn in turns]
        result: dict[str, Any] = {"streams": streams, "rounds": rounds}
        if engine:
            alone = engine_figures(engine, streams)
            result |= {"engine": alone}
            result |= beside_the_engine(rounds, [one["tokens_per_second"]["median"] for one in alone])
        results.append(result)
    return results


# Requests at a rate.


async def send_at(due: float, target: Target, request: dict[str, Any], deadline: float) -> tuple[float, Stream]:
    """The stream, and by how much the client was late."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    stream = await clients.streamed(target, request, deadline - time.perf_counter())
    return stream.begun - due, stream


async def requests_at(server: Server, rate: float, arguments: argparse.Namespace) -> dict[str, Any]:
    limits = limits_of(arguments)
    seed = f"{arguments.seed}/open/{rate:g}"
    moments = arrivals(seed, rate, arguments.window)
    bodies = [body(f"{seed}/{number}", arguments, arguments.tokens) for number in range(len(moments))]
    begin = time.perf_counter() + START_SECONDS
    deadline = begin + arguments.window + limits.longest(arguments.tokens)
    measured: dict[str, Any] = {}
    with client_share(measured):
        sent = await asyncio.gather(*(send_at(begin + moment, server.target, one, deadline)
                                      for moment, one in zip(moments, bodies, strict=True)))
    measured["client_late_p99_ms"] = round(percentile([late for late, _ in sent], 0.99) * 1e3, 3) if sent else None
    figures = open_loop_figures([read_stream(stream) for _, stream in sent], rate, arguments.window, limits)
    return figures | measured


async def wait_until_calm(server: Server, arguments: argparse.Namespace) -> None:
    """What was cut is gone when one request is served alone."""
    seed = f"{arguments.seed}/calm/{time.monotonic()}"
    found = read_stream(await clients.streamed(server.target, body(seed, arguments, 2), ROUND_SECONDS))
    server.check()
    if found.fault:
        raise SystemExit(f"the server does not answer any more: {found.fault}")


async def warm_up(server: Server, arguments: argparse.Namespace) -> list[Read]:
    """Rounds of the sizes that the steps of the server will have."""
    raw: list[Stream] = []
    for streams in arguments.warm_up:
        bodies = [body(f"{arguments.seed}/warm-up/{streams}/{number}", arguments, arguments.tokens)
                  for number in range(streams)]
        raw += await asyncio.gather(*(clients.streamed(server.target, one, ROUND_SECONDS) for one in bodies))
    return [read_stream(stream) for stream in raw]


def summary_of(point: dict[str, Any]) -> str:
    return (f"{point['rate']:g}/s: {point['offered']} sent, {point['completed']} complete, goodput "
            f"{point['goodput_per_second']:.2f}/s ({point['goodput_share']:.0%}), first token p50 "
            f"{point['ttft_ms']['p50']} ms, p99 {point['ttft_ms']['p99']} ms, others p50 {point['tpot_ms']['p50']} ms")


async def rising_rates(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    rates = Rates(arguments.rates, arguments.enough, arguments.collapse, arguments.refinements)
    warm = await warm_up(server, arguments)
    if broken := [read.fault for read in warm if read.fault]:
        raise SystemExit(f"{len(broken)} of {len(warm)} requests to warm up failed: {broken[0]}")
    longest = arguments.window + limits_of(arguments).longest(arguments.tokens)
    shares: dict[float, float] = {}
    points, stopped = [], "all rates were tried"
    while rate := next_rate(shares, rates):
        if time.monotonic() - begun + longest > arguments.limit:
            stopped = "the next rate could have exceeded --limit"
            break
        points.append(await requests_at(server, rate, arguments))
        say(summary_of(points[-1]))
        shares[rate] = points[-1]["goodput_share"]
        server.check()
        await wait_until_calm(server, arguments)
    return {"rates": points, "highest_good_rate": highest_good_rate(shares, arguments.enough), "stopped": stopped,
            "seconds": round(time.monotonic() - begun, 1)}


def open_loop(arguments: argparse.Namespace) -> dict[str, Any]:
    with serving(server_words(arguments), arguments.ready_seconds) as server:
        return asyncio.run(rising_rates(server, arguments))


# The whole.


def limits_of(arguments: argparse.Namespace) -> Limits:
    return Limits(arguments.ttft, arguments.tpot)


def server_words(arguments: argparse.Namespace) -> list[str]:
    if arguments.peer_command:
        return words_of(arguments.peer_command)
    return [str(arguments.kipp), "serve", "--model", str(arguments.model), "--allow-synthetic", "--backend",
            arguments.backend, "--port", "{port}", *arguments.kipp_flag, *arguments.serve_flag]


def version_of(program: str) -> list[str]:
    """What the program says of itself; llama-server says it on standard error."""
    try:
        done = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    except OSError as error:
        raise SystemExit(f"{program}: cannot be started: {error}") from error
    return done.stdout.splitlines()[-12:]


def artifact_of(arguments: argparse.Namespace) -> dict[str, Any]:
    command = [str(arguments.kipp), "inspect", "--model", str(arguments.model), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    return {key: found[key] for key in ("checkpoint", "scheme", "synthetic", "header_sha256") if key in found}


def numbers(kind: type) -> Any:
    def parse(text: str) -> list[Any]:
        found = [kind(part) for part in text.split(",")]
        if min(found) <= 0 or sorted(set(found)) != found:
            raise ValueError(text)
        return found
    parse.__name__ = "rising list"
    return parse


def parts(text: str) -> list[str]:
    found = text.split(",")
    if not set(found) <= {"closed", "open"}:
        raise ValueError(text)
    return found


def parser_of_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kipp", type=Path, help="the kipp program, whose server and engine are measured")
    parser.add_argument("--model", type=Path, help="the artifact")
    parser.add_argument("--backend", default="cpu", help="Kipp's (default: cpu)")
    parser.add_argument("--kipp-flag", action="append", default=[], metavar="FLAG", help="for serve and bench, as "
                        "--kipp-flag=--threads=1; may be repeated")
    parser.add_argument("--serve-flag", action="append", default=[], metavar="FLAG", help="for kipp serve alone")
    parser.add_argument("--bench-flag", action="append", default=[], metavar="FLAG", help="for kipp bench alone")
    parser.add_argument("--peer-command", metavar="COMMAND", help="another server instead, with {port} where it goes")
    parser.add_argument("--parts", type=parts, default=["closed", "open"], help="closed, open or both (default)")
    parser.add_argument("--words", type=int, default=180, help="of a prompt; each is one token (default: 180)")
    parser.add_argument("--streams", type=numbers(int), default=[1, 8, 32, 64], metavar="N,N", help="sizes of rounds")
    parser.add_argument("--closed-tokens", type=int, default=256, help="of each stream of a round (default: 256)")
    parser.add_argument("--repetitions", type=int, default=3, help="rounds of a size in a turn (default: 3)")
    parser.add_argument("--turns", type=int, default=2, help="servers, with kipp bench around each (default: 2)")
    parser.add_argument("--rates", type=numbers(float), default=[2.0**i for i in range(11)], metavar="R,R",
                        help="requests a second (default: 1, 2, 4 … 1024)")
    parser.add_argument("--warm-up", type=numbers(int), default=[1, 2, 4, 8, 16, 32, 64], metavar="N,N",
                        help="sizes of rounds before the rates (default: 1, 2, 4 … 64)")
    parser.add_argument("--window", type=float, default=20.0, help="seconds of arrivals at each rate (default: 20)")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer at a rate (default: 64)")
    parser.add_argument("--ttft", type=float, default=2.0, help="limit for the first token, seconds (default: 2)")
    parser.add_argument("--tpot", type=float, default=0.2, help="limit for each other one, on average (default: 0.2)")
    parser.add_argument("--enough", type=float, default=0.9, help="share of good requests of a good rate (0.9)")
    parser.add_argument("--collapse", type=float, default=0.5, help="share below which rates do not rise (0.5)")
    parser.add_argument("--refinements", type=int, default=3, help="rates between good and not (default: 3)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for all rates together (default: 600)")
    parser.add_argument("--ready-seconds", type=float, default=180.0, help="for a server to start (default: 180)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the record to this file (default: print it)")
    return parser


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of_flags()
    arguments = parser.parse_args(argv)
    if bool(arguments.peer_command) == bool(arguments.kipp and arguments.model):
        parser.error("either --kipp and --model, or --peer-command")
    if min(arguments.words, arguments.tokens - 1, arguments.closed_tokens - 1, arguments.repetitions,
           arguments.turns) < 1:
        parser.error("--words, --repetitions and --turns must be at least 1, numbers of tokens at least 2")
    if arguments.kipp and "closed" in arguments.parts and max(arguments.streams) > MOST_STREAMS_OF_BENCH:
        parser.error(f"kipp bench decodes at most {MOST_STREAMS_OF_BENCH} sequences")
    return arguments


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    left_out = {"kipp", "model", "peer_command", "output"}
    return {key: value for key, value in vars(arguments).items() if key not in left_out}


def facts_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is known before anything is measured, and fails then if it must."""
    words = server_words(arguments)
    return {
        "what": __doc__.splitlines()[0],
        "protocol": PROTOCOL,
        "machine": machine(),
        "gpu": gpu_facts(0),
        "server": {"command": without_folders(words), "version": version_of(words[0])},
        "artifact": artifact_of(arguments) if arguments.kipp else None,
        "engine_command": without_folders(engine_command(arguments)) if arguments.kipp else None,
        "settings": settings_of(arguments),
        **source(),
    }


def allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    arguments = parse()
    allow_many_connections()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # a time limit's: the server must end too
    record = facts_of(arguments)
    measure = {"closed": closed_loop, "open": open_loop}
    record["results"] = {part: measure[part](arguments) for part in arguments.parts}
    record["machine"]["load_average_after"] = machine()["load_average"]
    hand_out(record, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
