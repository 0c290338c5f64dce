"""What bench/cuda_roofline.py measures, by Kipp and by peers, and how it runs a program that measures."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

from provenance import ROOT


class Cases(NamedTuple):
    """One run of `kipp bench`: the model is opened once, with memory for its own cases."""

    prefill: int  # tokens of a prompt; 0: none
    depth: int  # context of the sequences that decode
    batches: tuple[int, ...] = (1,)  # how many decode together

    def flags(self) -> list[str]:
        batch = [] if self.batches == (1,) else ["--batch", ",".join(map(str, self.batches))]
        return ["--prefill", str(self.prefill), "--depth", str(self.depth), *batch]


GROUPS = {
    "short": Cases(prefill=2048, depth=128),
    "long": Cases(prefill=16384, depth=16384),
    "many": Cases(prefill=0, depth=1024, batches=(8, 32, 64)),
}


def run(command: list[str]) -> str:
    """Its standard output. Ends the script if it fails."""
    print("$", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}")
    return done.stdout
