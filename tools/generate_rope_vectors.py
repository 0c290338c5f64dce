"""Makes tests/vectors/rope.safetensors: Transformers' rotary frequencies, cosines and sines for every RoPE base.

torch's vectorised pow is off by one unit in the last place at one frequency of each base (AVX-512), so the file is made
with torch's scalar code, which agrees with 1.0f / float(pow(theta, 2i/128)) in all 128 values. Needs
requirements/reference.txt.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # read when torch starts

import numpy as np

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from safetensors.numpy import save

from tools.atomic_file import write_file
from tools.checkpoints import CHECKPOINTS, HEAD_DIM
from tools.command import run_command

POSITIONS = (0, 1, 31, 32, 1000, 40959, 262143)
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "tests" / "vectors" / "rope.safetensors"


def rope_vectors() -> dict[str, np.ndarray]:
    """positions I32 [P]; per base theta_<n>.inv_freq F32 [64], .cos and .sin F32 [P][64] (the halves are equal)."""
    import torch
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    vectors = {"positions": np.array(POSITIONS, dtype=np.int32)}
    for theta in sorted({checkpoint.rope_theta for checkpoint in CHECKPOINTS}):
        config = Qwen3Config(head_dim=HEAD_DIM, rope_parameters={"rope_theta": theta, "rope_type": "default"},
                             max_position_embeddings=max(POSITIONS) + 1)
        rotary = Qwen3RotaryEmbedding(config=config)
        cosines, sines = rotary(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
        half = HEAD_DIM // 2
        vectors[f"theta_{theta:.0f}.inv_freq"] = rotary.inv_freq.numpy()
        vectors[f"theta_{theta:.0f}.cos"] = np.ascontiguousarray(cosines[0, :, :half].numpy())
        vectors[f"theta_{theta:.0f}.sin"] = np.ascontiguousarray(sines[0, :, :half].numpy())
    return vectors


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="FILE")
    arguments = parser.parse_args(argv)
    write_file(arguments.output, save(rope_vectors()))
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
