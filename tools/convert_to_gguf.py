"""Converts a snapshot of a registry entry to Kipp's artifact, kipp-<id>-<scheme>.gguf.

Whatever is not as it must be is refused with file, item, expected and found. Checked in every snapshot:
  config.json             every field that shapes the computation, against the registry
  weights                 names, shapes and dtype of all tensors; no NaN or infinity
  tokenizer.json          the vocabulary, the merges and the added tokens of Qwen3
  generation_config.json  the stop tokens, against the registry, and that the sampling defaults can be recorded
Their other contents are not known to the registry, which pins a commit and no hashes: the values of the weights, the
sampling defaults and the chat template are taken as they are. The artifact records the sha256 of every file read.
Every byte of every file read is checked, by sha256, in two cases:
  kipp-demo               against the checkpoint stored in tools/demo
  kipp_download.json      if the folder has one, against this record of its download

The artifact appears only when it is whole and synced: a killed run or a full disk leaves nothing under its name. A link
as --output is followed; nothing but a regular file is replaced, and no file of the snapshot.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.artifact import artifact_file_name, write_artifact
from tools.atomic_file import require_replaceable
from tools.checkpoints import CHECKPOINT_IDS, find_checkpoint
from tools.command import run_command
from tools.errors import ToolError
from tools.safetensors_reader import SnapshotWeights
from tools.snapshot import (
    check_config,
    describe_source,
    read_config,
    read_marker,
    source_file_names,
    tensor_pieces,
)
from tools.source_pins import DOWNLOAD_RECORD
from tools.weight_schemes import SCHEMES, WeightScheme

MODELS_FOLDER = Path("models")


def require_no_input(path: Path, folder: Path, names: list[str]) -> None:
    """The artifact must not replace a file of the snapshot, under whatever name, nor be taken for one later."""
    require_replaceable(path)  # the writer asks, too, but only after the weights are read once
    for name in (*names, DOWNLOAD_RECORD):
        if path.exists() and (folder / name).exists() and path.samefile(folder / name):
            raise ToolError(f"{path}: is {name} of the snapshot itself; name another file with --output")
    target = path.resolve()
    if target.parent == folder.resolve() and target.suffix != ".gguf":
        raise ToolError(f"{path}: is in the snapshot's folder, where an artifact's name must end in .gguf")


def convert(checkpoint_id: str, folder: Path, output: Path | None, scheme: WeightScheme, *,
            think_tokens: str | None = None, allow_synthetic: bool = False) -> Path:
    """Checks the snapshot, writes the artifact, returns its path."""
    checkpoint = find_checkpoint(checkpoint_id)
    if not folder.is_dir():
        raise ToolError(f"{folder}: no such folder; --source names the snapshot of {checkpoint.repository}")
    marker = read_marker(folder, checkpoint)
    if marker and not allow_synthetic:
        raise ToolError(f"{folder}: its weights are synthetic; --allow-synthetic converts it all the same")
    num_layers = marker.num_layers if marker else checkpoint.num_layers
    check_config(read_config(folder), folder / "config.json", checkpoint, num_layers)
    path = output or MODELS_FOLDER
    if output is None or output.is_dir():
        path /= artifact_file_name(checkpoint, num_layers, scheme)
    with SnapshotWeights(folder) as weights:
        require_no_input(path, folder, source_file_names(folder, weights))
        source = describe_source(folder, weights, checkpoint, marker)
        if think_tokens is not None:
            tokenizer = source.tokenizer.with_think_tokens(think_tokens == "isolate")
            source = dataclasses.replace(source, tokenizer=tokenizer)
        write_artifact(path, source, scheme, functools.partial(tensor_pieces, weights))
    return path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="ID", help=f"one of {', '.join(CHECKPOINT_IDS)}")
    parser.add_argument("--source", type=Path, metavar="DIR", help="the snapshot (default: models/<id>)")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="the artifact, or a folder for it (default: models/kipp-<id>-<scheme>.gguf)")
    parser.add_argument("--scheme", choices=list(SCHEMES), default="bf16",
                        help="how the projections of the layers are stored: bf16, exact; q8_0, 8.5 bits a weight, "
                        "near-lossless; affine4_gs32, 5 bits, lossy (default: bf16)")
    parser.add_argument("--think-tokens", choices=("isolate", "split"),
                        help="override whether <think>, </think>, <tool_response>, </tool_response> are tokens of "
                        "their own; recorded in the artifact (default: as the registry says)")
    parser.add_argument("--allow-synthetic", action="store_true", help="accept a synthetic twin's snapshot")
    arguments = parser.parse_args(argv)
    source = arguments.source or MODELS_FOLDER / arguments.checkpoint
    path = convert(arguments.checkpoint, source, arguments.output, SCHEMES[arguments.scheme],
                   think_tokens=arguments.think_tokens, allow_synthetic=arguments.allow_synthetic)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
