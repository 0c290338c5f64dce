"""Runs the gates on full-size synthetic twins: makes the twin, its FP32 reference on the GPU, and the record.

One command for a machine with a GPU: the twin's artifact is written straight from its seed, Transformers makes the
reference vectors from that artifact in FP32 (TF32 off), and `kipp gates` compares a backend with them on the CPU. Where
Phase 1 is not among the gates, as for a GPU by default, there is no reference, and vectors hold prompts alone.
Records go to bench/results/gates-<machine>-<id>-<scheme>.json, those of another backend than the oracle with its name.
Twin and vectors of a run that did not pass are kept, to look into. Needs requirements/reference.txt
(without references only tokenizers and torch of it).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.weight_schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
GATES = ("phase0", "phase1", "phase2", "placement", "against-oracle")
DEFAULT_GATES = {"oracle": GATES[:-1], "cpu": GATES, "cuda": ("phase0", "phase2", "placement", "against-oracle")}


def step(title: str, *command: object) -> int:
    print(f"== {title}", flush=True)
    start = time.monotonic()
    status = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
    print(f"== {title}: exit {status}, {time.monotonic() - start:.1f} s", flush=True)
    return status


def twin_and_reference(checkpoint: str, scheme: str, folder: Path, args: argparse.Namespace) -> int:
    """The artifact and its vectors in `folder`, as artifact_of and vectors_of name them."""
    python, artifact, vectors = sys.executable, artifact_of(checkpoint, scheme, folder), vectors_of(scheme, folder)
    what = "reference" if needs_reference(args) else "prompts"
    twin = ["--like", checkpoint, "--seed", args.seed, "--artifact", artifact, "--device", args.generator,
            "--scheme", scheme]
    reference = ["--model", artifact, "--output", vectors, "--prompts", args.prompts]
    if not needs_reference(args):
        reference += ["--prompts-only"]
    else:
        reference += ["--device", args.device]
        reference += ["--bf16-vectors", vectors_of("bf16", folder)] if scheme != "bf16" else []
    return (step(f"{checkpoint} {scheme}: twin", python, "-m", "tools.make_synthetic_checkpoint", *twin)
            or step(f"{checkpoint} {scheme}: {what}", python, "-m", "tools.generate_test_vectors", *reference))


def gates_of(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(args.gates or DEFAULT_GATES[args.backend])


def needs_reference(args: argparse.Namespace) -> bool:
    return "phase1" in gates_of(args)


def artifact_of(checkpoint: str, scheme: str, folder: Path) -> Path:
    return folder / f"kipp-{checkpoint}-{scheme}.gguf"


def vectors_of(scheme: str, folder: Path) -> Path:
    return folder / f"vectors-{scheme}"


def gate_one(checkpoint: str, args: argparse.Namespace) -> int:
    """Twin, reference and gates of one registry entry in every scheme asked for; 0 if all of it passed.

    With references that in BF16 comes first in any case: what the quantised weights cost is measured against it.
    """
    folder = args.work / checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for scheme in dict.fromkeys(("bf16", *args.scheme) if needs_reference(args) else args.scheme):
        status = status or twin_and_reference(checkpoint, scheme, folder, args)
        artifact = artifact_of(checkpoint, scheme, folder)
        if scheme in args.scheme:
            suffix = "" if args.backend == "oracle" else f"-{args.backend}"
            record = args.output / f"gates-{args.machine}-{checkpoint}-{scheme}{suffix}.json"
            gates = ["--backend", args.backend, "--model", artifact, "--allow-synthetic"]
            gates += ["--vectors", vectors_of(scheme, folder), "--json", record]
            gates += [f"--{gate}" for gate in gates_of(args)]
            status = status or step(f"{checkpoint} {scheme}: gates", args.kipp, "gates", *gates)
        if status == 0 and not args.keep:
            artifact.unlink(missing_ok=True)  # one at a time on the disk
    if status != 0:
        print(f"== {checkpoint}: did not pass; artifact and vectors, as far as made, are kept in {folder}", flush=True)
    elif not args.keep:
        shutil.rmtree(folder)
    return status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="ID", help="registry entries, in the order to run")
    parser.add_argument("--kipp", type=Path, default=ROOT / "build/release/bin/kipp", help="the engine's binary")
    parser.add_argument("--machine", required=True, help="goes into the record's file name, for instance h200")
    parser.add_argument("--work", type=Path, default=ROOT / "build/twins", help="space for artifacts and vectors")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results", help="folder of the records")
    parser.add_argument("--prompts", type=Path, default=ROOT / "tests/vectors/prompts.jsonl")
    parser.add_argument("--device", default="cuda", help="of the reference: cuda or cpu")
    parser.add_argument("--generator", default="cuda", help="of the twin's weights: cuda or numpy")
    parser.add_argument("--backend", choices=list(DEFAULT_GATES), default="oracle", help=", ".join(DEFAULT_GATES))
    parser.add_argument("--gates", nargs="+", choices=GATES, metavar="GATE",
                        help=f"{', '.join(GATES)} (default: all that the backend has)")
    parser.add_argument("--scheme", nargs="+", choices=list(SCHEMES), default=["bf16"], metavar="SCHEME",
                        help=f"{', '.join(SCHEMES)} (default: bf16)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep artifacts and vectors of passed gates too")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    failed = [checkpoint for checkpoint in args.checkpoints if gate_one(checkpoint, args) != 0]
    print(f"{len(args.checkpoints) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
