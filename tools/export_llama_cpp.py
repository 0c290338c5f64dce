"""Writes an artifact once more as a GGUF that llama.cpp runs: the norms widened to F32, nothing else changed.

llama.cpp wants the weights of a norm in F32. Widening BF16 is exact, so both files hold the same model; the keys are
the same bytes, and so is every other tensor, in every scheme: Q8_0 and Q4_1 (AFFINE4's) are GGML's own. Kipp itself
opens only the artifact. More: docs/interchange.md.

The artifact is checked first: the keys that say what to compute and the tensors against the registry, its length
against both. The tokenizer and the weights are taken as they are; Kipp and its gates check those. The export appears
only when it is whole and synced; a link as --output is followed, and nothing but a regular file is replaced, never the
artifact itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tqdm import tqdm

from tools.artifact import FORMAT_VERSION, PIECE_BYTES, SYNTHETIC_REPOSITORY, model_keys, synthetic_repository
from tools.atomic_file import AtomicFile, require_replaceable
from tools.bf16 import widen
from tools.checkpoints import CHECKPOINT_IDS, Checkpoint, find_checkpoint
from tools.command import run_command
from tools.errors import ToolError, mismatch
from tools.gguf_reader import GgufFile
from tools.gguf_writer import ALIGNMENT, GgufWriter, Metadata, TensorInfo, ValueType, align
from tools.model_tensors import ModelTensor, TensorRole, model_tensors
from tools.weight_schemes import SCHEMES, WeightScheme

GGML_F32 = 0
F32_BYTES = 4
NORMS = (TensorRole.LAYER_NORM, TensorRole.FINAL_NORM)

EPILOG = """\
examples:
  python -m tools.export_llama_cpp --model models/kipp-kipp-demo-bf16.gguf
                                   to models/kipp-kipp-demo-bf16-llama-cpp.gguf
  python -m tools.export_llama_cpp --model models/kipp-qwen3-8b-bf16.gguf --output /data
  python -m tools.export_llama_cpp --model build/twins/kipp-qwen3-0.6b-bf16.gguf --allow-synthetic
"""


def require_key(file: GgufFile, key: str, kind: ValueType, expected: object = None) -> object:
    """The value of a key that must be there with this type and, unless None is expected, with this value."""
    if key not in file.metadata:
        raise mismatch(file.path, key, f"a {kind.name}" if expected is None else expected, "no such key")
    if file.types[key] != (kind, None):
        raise mismatch(file.path, f"{key}: type", f"{kind.name} ({kind.value})", file.types[key][0])
    value = file.metadata[key]
    if expected is not None and value != expected:
        raise mismatch(file.path, key, expected, value)
    return value


def require_layers(file: GgufFile, checkpoint: Checkpoint, allow_synthetic: bool) -> int:
    """The number of layers, which only a twin may have of its own; and the source that belongs to it."""
    num_layers = int(str(require_key(file, "qwen3.block_count", ValueType.U32)))
    repository = str(require_key(file, "kipp.source.repository", ValueType.STRING))
    if not repository.startswith(SYNTHETIC_REPOSITORY):
        require_key(file, "kipp.source.repository", ValueType.STRING, checkpoint.repository)
        require_key(file, "kipp.source.revision", ValueType.STRING, checkpoint.revision)
        require_key(file, "qwen3.block_count", ValueType.U32, checkpoint.num_layers)
        return num_layers
    if not allow_synthetic:
        raise ToolError(f"{file.path}: its weights are synthetic; --allow-synthetic exports it all the same")
    if not 1 <= num_layers <= checkpoint.num_layers:
        raise mismatch(file.path, "qwen3.block_count", f"1 to {checkpoint.num_layers}", num_layers)
    expected = synthetic_repository(checkpoint, num_layers)
    require_key(file, "kipp.source.repository", ValueType.STRING, expected)
    return num_layers


def require_scheme(file: GgufFile) -> WeightScheme:
    name = str(require_key(file, "kipp.quant.scheme", ValueType.STRING))
    if name not in SCHEMES:
        raise mismatch(file.path, "kipp.quant.scheme", f"one of {', '.join(SCHEMES)}", name)
    require_key(file, "general.file_type", ValueType.U32, SCHEMES[name].file_type)
    return SCHEMES[name]


def require_artifact(file: GgufFile, allow_synthetic: bool) -> tuple[WeightScheme, dict[str, ModelTensor]]:
    """Its scheme, and its tensors in the order of the file, once they are known to be those of the registry's entry."""
    require_key(file, "general.architecture", ValueType.STRING, "qwen3")
    require_key(file, "kipp.format_version", ValueType.U32, FORMAT_VERSION)
    require_key(file, "general.alignment", ValueType.U32, ALIGNMENT)
    scheme = require_scheme(file)
    checkpoint_id = require_key(file, "kipp.checkpoint.id", ValueType.STRING)
    try:
        checkpoint = find_checkpoint(str(checkpoint_id))
    except ToolError:
        raise mismatch(file.path, "kipp.checkpoint.id", f"one of {', '.join(CHECKPOINT_IDS)}", checkpoint_id) from None
    num_layers = require_layers(file, checkpoint, allow_synthetic)
    for entry in model_keys(checkpoint, num_layers, scheme):
        single = entry.type is ValueType.F32
        require_key(file, entry.key, entry.type, float(np.float32(entry.value)) if single else entry.value)
    require_key(file, "tokenizer.ggml.eos_token_id", ValueType.U32, checkpoint.eos_token)
    expected = {tensor.gguf_name: tensor for tensor in model_tensors(checkpoint, num_layers)}
    for name in expected.keys() - file.tensors.keys():
        raise mismatch(file.path, f"tensor {name}", "to be there", "no such tensor")
    for name, entry in file.tensors.items():
        if name not in expected:
            raise mismatch(file.path, f"tensor {name}", f"no other than those of {checkpoint.id}", "it")
        dimensions = tuple(reversed(expected[name].shape))
        if entry.dimensions != dimensions:
            raise mismatch(file.path, f"tensor {name}: dimensions", dimensions, entry.dimensions)
        encoding = scheme.encoding_of(expected[name])
        if entry.ggml_type != encoding.ggml_type:
            raise mismatch(file.path, f"tensor {name}: type", f"{encoding.name} ({encoding.ggml_type})",
                           entry.ggml_type)
    require_layout(file, {name: stored_bytes(tensor, scheme) for name, tensor in expected.items()})
    return scheme, {name: expected[name] for name in file.tensors}


def stored_bytes(tensor: ModelTensor, scheme: WeightScheme) -> int:
    return scheme.encoding_of(tensor).num_bytes(tensor.num_elements)


def require_layout(file: GgufFile, num_bytes: dict[str, int]) -> None:
    """The tensors' data, in whatever order, fill the file from the header to its last byte."""
    position = 0
    for name, entry in sorted(file.tensors.items(), key=lambda item: item[1].offset):
        if entry.offset != align(position):
            raise mismatch(file.path, f"tensor {name}: offset", align(position), entry.offset)
        position = entry.offset + num_bytes[name]
    if file.num_bytes != file.data_start + position:
        raise mismatch(file.path, "length", f"{file.data_start + position} bytes", file.num_bytes)


def exported_metadata(file: GgufFile) -> list[Metadata]:
    """Every key as it is."""
    entries = []
    for key, value in file.metadata.items():
        kind, element = file.types[key]
        if not all(code is None or code in set(ValueType) for code in (kind, element)):
            raise mismatch(file.path, f"{key}: type", "one that artifacts use", kind if element is None else element)
        entries.append(Metadata(key, ValueType(kind), value, None if element is None else ValueType(element)))
    return entries


def exported_info(tensor: ModelTensor, scheme: WeightScheme) -> TensorInfo:
    dimensions = tuple(reversed(tensor.shape))
    if tensor.role in NORMS:
        return TensorInfo(tensor.gguf_name, dimensions, GGML_F32, F32_BYTES * tensor.num_elements)
    return TensorInfo(tensor.gguf_name, dimensions, scheme.encoding_of(tensor).ggml_type, stored_bytes(tensor, scheme))


def exported_pieces(file: GgufFile, tensor: ModelTensor, scheme: WeightScheme) -> Iterator[memoryview]:
    """The bytes of one tensor as the export has them, a bounded piece at a time."""
    num_bytes = stored_bytes(tensor, scheme)
    for start in range(0, num_bytes, PIECE_BYTES):
        data = file.read(tensor.gguf_name, start, min(PIECE_BYTES, num_bytes - start))
        yield widen(np.frombuffer(data, "<u2")).astype("<f4").data if tensor.role in NORMS else memoryview(data)


def export(artifact: Path, output: Path | None, *, allow_synthetic: bool = False) -> Path:
    """Checks the artifact, writes the export, returns its path."""
    path = output or artifact.parent
    if path.is_dir():
        path /= f"{artifact.stem}-llama-cpp.gguf"
    require_replaceable(path)
    if path.exists() and artifact.exists() and path.samefile(artifact):
        raise ToolError(f"{path}: is the artifact itself; name another file with --output")
    with GgufFile(artifact) as file:
        scheme, tensors = require_artifact(file, allow_synthetic)
        metadata = exported_metadata(file)
        with AtomicFile(path) as target:
            writer = GgufWriter(target, metadata, [exported_info(tensor, scheme) for tensor in tensors.values()])
            with tqdm(total=writer.total_bytes, unit="B", unit_scale=True, desc=path.name, disable=None) as progress:
                for name, tensor in tensors.items():
                    writer.begin_tensor(name)
                    for piece in exported_pieces(file, tensor, scheme):
                        writer.write(piece)
                        progress.update(piece.nbytes)
            writer.finish()
            target.commit()
    return path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, metavar="FILE",
                        help="the artifact, made by tools/convert_to_gguf.py")
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="the export, or a folder for it (default: <name>-llama-cpp.gguf beside the artifact)")
    parser.add_argument("--allow-synthetic", action="store_true", help="accept a synthetic twin")
    arguments = parser.parse_args(argv)
    print(export(arguments.model, arguments.output, allow_synthetic=arguments.allow_synthetic))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
