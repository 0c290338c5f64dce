#!/usr/bin/env python3
"""Kipp on a GPU beside what the GPU could do: the record and the plot of docs/benchmarks.md.

For each checkpoint and scheme: makes the synthetic twin, runs `kipp bench` on it (which measures memory and matrix unit
around every figure), and deletes the twin. Then, with torch, the memory again, cuBLAS on the checkpoints' shapes, and
the peers: Transformers, and llama.cpp on the same weights. One command need not do all of it: each adds to the record
in --output, and what it measures again takes the place of what was there.

    python bench/cuda_roofline.py --kipp build/release/bin/kipp --output bench/results/cuda-h200-roofline.json \\
        --checkpoints qwen3-0.6b,qwen3-4b --schemes bf16 --groups short,long,many
    python bench/cuda_roofline.py --output bench/results/cuda-h200-roofline.json --parts limits,transformers \\
        --checkpoints qwen3-0.6b,qwen3-4b
    python bench/cuda_roofline.py --output bench/results/cuda-h200-roofline.json --parts llama.cpp \\
        --llama-cpp llama.cpp/build/bin --groups short,long,many
    python bench/cuda_roofline.py --output bench/results/cuda-h200-roofline.json --parts none \\
        --plot docs/cuda-roofline.png
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llama_cpp_peer import LlamaCppPeer
from provenance import ROOT, gpu_facts, machine, source

sys.path.append(str(ROOT))

from roofline_figures import draw, table
from roofline_runs import GROUPS, run

from tools.artifact import artifact_file_name
from tools.checkpoints import CHECKPOINT_IDS, find_checkpoint
from tools.weight_schemes import SCHEMES

PARTS = ("kipp", "limits", "transformers", "llama.cpp")
PEER_KEYS = ("engine", "checkpoint", "scheme", "kind", "tokens", "depth", "batch", "mode")
PROTOCOL = (
    "kipp bench: one warm-up, then the repetitions, the limits measured before, between and after them; shares are of "
    "the larger of the two around a repetition; no token is drawn unless a case says so. Limits besides: torch's sum "
    "and copy, cuBLAS in BF16 through torch.mm, means of several calls between two events. Transformers: BF16 weights "
    "from its own initialisation, SDPA; a prompt in one eager call, one sequence decoding greedily by a compiled step "
    "on a static cache, and eagerly. llama.cpp: its own llama-bench and llama-batched-bench on an export of the same "
    "twin, all layers on the GPU, flash attention on. Each entry says when and from which commit; all on the GPU that "
    "the record names"
)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Twin:
    """The artifact of one checkpoint and scheme: made where it is not there, and then deleted afterwards."""

    def __init__(self, arguments: argparse.Namespace, checkpoint_id: str, scheme: str) -> None:
        checkpoint = find_checkpoint(checkpoint_id)
        name = artifact_file_name(checkpoint, checkpoint.num_layers, SCHEMES[scheme])
        self.path = arguments.twins.resolve() / name
        self.is_own = not self.path.exists() and not arguments.keep_twins
        self.command = [sys.executable, "-m", "tools.make_synthetic_checkpoint", "--like", checkpoint_id, "--seed", "1",
                        "--scheme", scheme, "--device", arguments.twin_device, "--artifact", str(self.path)]

    def __enter__(self) -> Path:
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            run(self.command)
        return self.path

    def __exit__(self, *_: object) -> None:
        if self.is_own:
            self.path.unlink(missing_ok=True)


def kipp_command(arguments: argparse.Namespace, artifact: Path, group: str) -> list[str]:
    start = [] if group == "short" else ["--no-start"]
    return [str(arguments.kipp.resolve()), "bench", "--model", str(artifact), "--allow-synthetic", "--json",
            "--backend", arguments.backend, "--device", str(arguments.device),
            "--repetitions", str(arguments.repetitions), *start, *GROUPS[group].flags(), *arguments.kipp_flag]


def kipp_entries(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each as soon as it is measured: what a time limit cuts off loses only the rest."""
    version = run([str(arguments.kipp.resolve()), "--version"]).splitlines()
    for checkpoint in arguments.checkpoints:
        for scheme in arguments.schemes:
            with Twin(arguments, checkpoint, scheme) as artifact:
                for group in arguments.groups:
                    command = kipp_command(arguments, artifact, group)
                    measured = json.loads(run(command))
                    yield {"checkpoint": checkpoint, "scheme": scheme, "group": group, "utc": now(), **source(),
                           "kipp_version": version, "flags": command[command.index("--backend"):], "bench": measured}


def empty_record() -> dict[str, Any]:
    return {"protocol": PROTOCOL, "machine": machine(), "gpu": {}, "versions": {}, "limits": {}, "results": [],
            "peers": []}


def read_record(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty_record()


def merge(entries: list[dict[str, Any]], new: dict[str, Any], keys: tuple[str, ...]) -> None:
    """In the place of the entry that has the same keys, else at the end."""
    for index, old in enumerate(entries):
        if all(old.get(key) == new.get(key) for key in keys):
            entries[index] = new
            return
    entries.append(new)


def write_record(record: dict[str, Any], path: Path) -> None:
    record["summary"] = table(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def check_gpu(record: dict[str, Any], found: dict[str, str]) -> None:
    """A record is of one GPU with one driver: shares of another's limits would say nothing."""
    for field in ("name", "driver_version"):
        before = record["gpu"].get(field, found.get(field))
        if before != found.get(field):
            raise SystemExit(f"the record is of {field} {before}, but this is {found.get(field)}: another --output?")
    record["gpu"] = found or record["gpu"]


def measure_kipp(arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    if arguments.kipp is None:
        raise SystemExit("--kipp is needed for --parts kipp")
    for entry in kipp_entries(arguments):
        merge(record["results"], entry, ("checkpoint", "scheme", "group"))
        write_record(record, arguments.output)


def measure_limits(arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    import torch
    from cuda_peers import cublas_rates, memory_rates

    torch.cuda.set_device(arguments.device)
    checkpoints = [find_checkpoint(one) for one in arguments.checkpoints]
    record["versions"] |= {"torch": torch.__version__, "torch_cuda": torch.version.cuda}
    memory = memory_rates(8 << 30, arguments.repetitions)
    cublas = record["limits"].get("cublas", {}) | cublas_rates(checkpoints, 2048, arguments.repetitions)
    record["limits"] = {"utc": now(), "memory": memory, "cublas": cublas}
    write_record(record, arguments.output)


def measure_transformers(arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    import torch
    import transformers
    from cuda_peers import transformers_figures

    torch.cuda.set_device(arguments.device)
    record["versions"] |= {"torch": torch.__version__, "transformers": transformers.__version__}
    for one in arguments.checkpoints:
        for figure in transformers_figures(find_checkpoint(one), arguments.repetitions):
            merge(record["peers"], {**figure, "utc": now()}, PEER_KEYS)
        torch.cuda.empty_cache()
        write_record(record, arguments.output)


def measure_llama_cpp(arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    if arguments.llama_cpp is None:
        raise SystemExit("--llama-cpp is needed for --parts llama.cpp")
    for checkpoint in arguments.checkpoints:
        for scheme in arguments.schemes:
            with Twin(arguments, checkpoint, scheme) as artifact:
                export = artifact.with_name(f"llama-cpp-{artifact.name}")
                run([sys.executable, "-m", "tools.export_llama_cpp", "--model", str(artifact), "--allow-synthetic",
                     "--output", str(export)])
                try:
                    peer = LlamaCppPeer(arguments.llama_cpp.resolve(), export, arguments.repetitions)
                    for group in arguments.groups:
                        for figure in peer.figures(GROUPS[group]):
                            merge(record["peers"], {"engine": "llama.cpp", "checkpoint": checkpoint, "scheme": scheme,
                                                    **figure, "utc": now()}, PEER_KEYS)
                        write_record(record, arguments.output)
                finally:
                    export.unlink(missing_ok=True)


def listed(name: str, allowed: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        values = text.split(",")
        for value in values:
            if value not in allowed:
                raise argparse.ArgumentTypeError(f"expected {name} of {', '.join(allowed)}, found {value!r}")
        return values

    return parse


def parse_parts(text: str) -> list[str]:
    return [] if text == "none" else listed("parts", PARTS)(text)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the record: read if it is there, and added to")
    parser.add_argument("--parts", type=parse_parts, default=["kipp"], metavar="P,P",
                        help=f"of {', '.join(PARTS)}; or none (default: kipp)")
    parser.add_argument("--kipp", type=Path, help="the kipp program (release build)")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR",
                        help="folder of llama.cpp's programs llama-bench and llama-batched-bench, built with CUDA")
    parser.add_argument("--checkpoints", type=listed("checkpoints", CHECKPOINT_IDS), default=["qwen3-4b"],
                        metavar="ID,ID", help="(default: qwen3-4b)")
    parser.add_argument("--schemes", type=listed("schemes", tuple(SCHEMES)), default=["bf16"], metavar="S,S",
                        help=f"of {', '.join(SCHEMES)} (default: bf16)")
    parser.add_argument("--groups", type=listed("groups", tuple(GROUPS)), default=["short"], metavar="G,G",
                        help="; ".join(f"{name}: {' '.join(cases.flags())}" for name, cases in GROUPS.items())
                        + " (default: short)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--backend", default="cuda", help="Kipp's (default: cuda)")
    parser.add_argument("--device", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--kipp-flag", action="append", default=[], metavar="FLAG",
                        help="one more for kipp bench, such as --kipp-flag=--sample")
    parser.add_argument("--twins", type=Path, default=ROOT / "build" / "twins", metavar="DIR",
                        help="where twins are made (default: build/twins); one that is there is used and kept")
    parser.add_argument("--twin-device", default="cuda", help="draws their weights: cuda or numpy (default: cuda)")
    parser.add_argument("--keep-twins", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the record, after measuring (needs matplotlib)")
    arguments = parser.parse_args(argv)
    if arguments.repetitions < 1:
        parser.error("--repetitions: expected 1 or more")
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    record = read_record(arguments.output)
    if arguments.parts:
        check_gpu(record, gpu_facts(arguments.device))
    measures = (measure_kipp, measure_limits, measure_transformers, measure_llama_cpp)
    for part, measure in zip(PARTS, measures, strict=True):
        if part in arguments.parts:
            measure(arguments, record)
    for row in table(record):
        print(row["text"])
    if arguments.plot is not None:
        draw(table(record), record, arguments.plot)
        print(arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
