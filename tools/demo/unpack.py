"""Rebuilds the demo's Hugging Face snapshot from the stored form: `python -m tools.demo.unpack --output DIR`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.command import run_command
from tools.demo.snapshot import unpack

STORED = Path(__file__).resolve().parent / "checkpoint"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=Path, default=STORED, help="folder with manifest.json and the packed weights")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the snapshot to")
    arguments = parser.parse_args()
    manifest = unpack(arguments.stored, arguments.output)
    print(f"{arguments.output}: model.safetensors sha256 {manifest['model_sha256']}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
