"""Writes a synthetic twin of a registry entry: a Hugging Face snapshot, or straight the artifact.

Same dimensions, weights from a seed (docs/synthetic-twins.md). A snapshot's shards can be made one at a time. A folder
with files of a snapshot that is no twin is refused.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tqdm import tqdm

from tools import safetensors_writer
from tools.artifact import PIECE_BYTES, TensorSource, artifact_file_name, write_artifact
from tools.atomic_file import AtomicFile, write_file
from tools.checkpoints import CHECKPOINT_IDS, Checkpoint, find_checkpoint
from tools.command import run_command
from tools.errors import ToolError
from tools.model_tensors import ModelTensor, model_tensors, row_pieces
from tools.synthetic_recipe import MASK64, TwinWeights
from tools.synthetic_snapshot import MARKER_NAME, snapshot_files, twin_source
from tools.weight_schemes import SCHEMES

if TYPE_CHECKING:
    from tools.bf16 import Array

SHARD_BYTES = 4 << 30
INDEX_NAME = "model.safetensors.index.json"

RowSource = Callable[[ModelTensor, int, int], "Array"]  # (tensor, first row, number of rows) -> their bf16


def tensor_source(rows: RowSource, pool: concurrent.futures.Executor, num_jobs: int) -> TensorSource:
    """Makes pieces in worker threads (numpy releases the interpreter lock), a bounded number ahead of the writer."""

    def pieces(tensor: ModelTensor) -> Iterator[Array]:
        waiting: deque[concurrent.futures.Future[Array]] = deque()
        for first_row, num_rows in row_pieces(tensor, PIECE_BYTES):
            waiting.append(pool.submit(rows, tensor, first_row, num_rows))
            if len(waiting) > num_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    return pieces


def plan_shards(tensors: list[ModelTensor], shard_bytes: int) -> list[list[ModelTensor]]:
    """Consecutive tensors, each shard as full as fits; a tensor larger than a shard gets its own."""
    shards: list[list[ModelTensor]] = [[]]
    used = 0
    for tensor in tensors:
        size = 2 * tensor.num_elements
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used += size
    return shards


def shard_name(index: int, num_shards: int) -> str:
    return "model.safetensors" if num_shards == 1 else f"model-{index + 1:05}-of-{num_shards:05}.safetensors"


def write_shard(path: Path, tensors: list[ModelTensor], source: TensorSource) -> None:
    header = safetensors_writer.encode_header(tensors)
    total = len(header) + sum(2 * tensor.num_elements for tensor in tensors)
    with AtomicFile(path) as file, tqdm(total=total, unit="B", unit_scale=True, desc=path.name, disable=None) as bar:
        file.require_space(total)
        file.write(header)
        for tensor in tensors:
            for bits in source(tensor):
                file.write(bits.data)
                bar.update(bits.nbytes)
        file.commit()


def write_index(folder: Path, shards: list[list[ModelTensor]]) -> None:
    total = sum(2 * tensor.num_elements for shard in shards for tensor in shard)
    weight_map = {tensor.hf_name: shard_name(index, len(shards)) for index, shard in enumerate(shards)
                  for tensor in shard}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_file(folder / INDEX_NAME, (json.dumps(index, indent=2) + "\n").encode())


def require_no_other_snapshot(folder: Path, names: list[str]) -> None:
    """A snapshot that was downloaded or trained is not written over."""
    if not (folder / MARKER_NAME).exists():
        for name in names:
            if os.path.lexists(folder / name):
                raise ToolError(f"{folder / name}: is there and no file of a synthetic twin (no {MARKER_NAME}); "
                                "name another folder with --output")


def write_snapshot(folder: Path, checkpoint: Checkpoint, arguments: argparse.Namespace, source: TensorSource) -> None:
    """The marker goes first: a folder with synthetic weights is never without it."""
    num_layers = arguments.layers
    shards = plan_shards(model_tensors(checkpoint, num_layers), arguments.shard_bytes)
    if arguments.shard is not None and not 1 <= arguments.shard <= len(shards):
        raise ToolError(f"--shard {arguments.shard}: this snapshot has shards 1 to {len(shards)}")
    files = snapshot_files(checkpoint, num_layers, arguments.seed)
    require_no_other_snapshot(folder, [*files, *(shard_name(index, len(shards)) for index in range(len(shards)))])
    for name, data in files.items():
        write_file(folder / name, data)
    for index, tensors in enumerate(shards):
        if arguments.shard in (None, index + 1):
            path = folder / shard_name(index, len(shards))
            write_shard(path, tensors, source)
            print(path)
    if len(shards) > 1:
        write_index(folder, shards)


def row_source(arguments: argparse.Namespace) -> RowSource:
    """A snapshot takes rows from host memory; an artifact's are encoded where they are drawn."""
    if arguments.device == "numpy":
        return TwinWeights(arguments.seed, arguments.layers).rows
    try:
        from tools.synthetic_torch import TorchTwinWeights
    except ImportError as error:
        raise ToolError(f"--device {arguments.device} needs torch: {error}") from error
    weights = TorchTwinWeights(arguments.seed, arguments.layers, arguments.device)
    return weights.rows if arguments.artifact is None else weights.device_rows


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", required=True, metavar="ID", help=f"registry entry: {', '.join(CHECKPOINT_IDS)}")
    parser.add_argument("--seed", required=True, type=int, help="0 to 2^64-1")
    parser.add_argument("--layers", type=int, help="cut the depth to this many layers")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--artifact", type=Path, metavar="FILE",
                        help="write the artifact; a folder gets the standard name in it")
    target.add_argument("--output", type=Path, metavar="DIR", help="write a snapshot")
    parser.add_argument("--scheme", choices=list(SCHEMES), default="bf16",
                        help="of the artifact; all but bf16 are quantised from the same weights (default: bf16)")
    parser.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="largest shard of a snapshot")
    parser.add_argument("--shard", type=int, metavar="K", help="write only the K-th shard of the snapshot")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads")
    parser.add_argument("--device", default="numpy",
                        help="draws and quantises the weights: numpy, or a torch device such as cuda (default: numpy)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    checkpoint = find_checkpoint(arguments.like)
    arguments.layers = checkpoint.num_layers if arguments.layers is None else arguments.layers
    if not 0 <= arguments.seed <= MASK64:
        raise ToolError(f"--seed {arguments.seed}: expected 0 to 2^64-1")
    if not 1 <= arguments.layers <= checkpoint.num_layers:
        raise ToolError(f"--layers {arguments.layers}: {checkpoint.id} allows 1 to {checkpoint.num_layers}")
    if arguments.jobs < 1 or arguments.shard_bytes < 1:
        raise ToolError("--jobs and --shard-bytes must be positive")
    if arguments.output is not None and arguments.scheme != "bf16":
        raise ToolError(f"--scheme {arguments.scheme} needs --artifact: a snapshot holds BF16")
    if arguments.shard is not None and arguments.output is None:
        raise ToolError("--shard needs --output: an artifact has no shards")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        source = tensor_source(row_source(arguments), pool, arguments.jobs)
        if arguments.output is not None:
            write_snapshot(arguments.output, checkpoint, arguments, source)
            return 0
        scheme = SCHEMES[arguments.scheme]
        path = arguments.artifact
        if path.is_dir():
            path /= artifact_file_name(checkpoint, arguments.layers, scheme)
        write_artifact(path, twin_source(checkpoint, arguments.layers, arguments.seed), scheme, source,
                       jobs=arguments.jobs)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
