"""The converter and the weights: tensor set, dtypes, NaN, tied heads; memory, full disks and kills."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_snapshots import REPOSITORY, TINY_BASE, Snapshot

from tools import convert_to_gguf
from tools.checkpoints import VOCAB_SIZE, Checkpoint, find_checkpoint
from tools.convert_to_gguf import convert
from tools.errors import ToolError
from tools.gguf_reader import GgufFile
from tools.model_tensors import EMBEDDING_NAME, HEAD_NAME, model_tensors, row_pieces
from tools.safetensors_reader import SafetensorsFile
from tools.safetensors_writer import encode_header
from tools.weight_schemes import SCHEMES

BF16 = SCHEMES["bf16"]
SnapshotOf = Callable[[str], Snapshot]
Tensors = dict[str, tuple[str, list[int], bytes]]
NORM = "model.layers.1.input_layernorm.weight"
PROJECTION = "model.layers.0.mlp.up_proj.weight"


def rewrite(copy: Snapshot, change: Callable[[Tensors], object]) -> None:
    """Applies a change to the tensors of model.safetensors, each (dtype, shape, bytes)."""
    with SafetensorsFile(copy.folder / "model.safetensors") as file:
        tensors = {name: (entry.dtype, list(entry.shape), bytes(file.read(entry, 0, entry.num_bytes)))
                   for name, entry in file.tensors.items()}
    change(tensors)
    header, position = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = json.dumps(header).encode()
    payload = b"".join(data for _, _, data in tensors.values())
    copy.replace("model.safetensors", struct.pack("<Q", len(text)) + text + payload)


def with_bits(data: bytes, index: int, bits: int) -> bytes:
    return data[: 2 * index] + struct.pack("<H", bits) + data[2 * index + 2 :]


def poison(name: str, index: int, bits: int) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape, with_bits(data, index, bits))

    return change


def replace(name: str, dtype: str, shape: list[int], num_bytes: int) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: (dtype, shape, bytes(num_bytes))})


TENSOR_CHANGES = [
    (lambda t: t.pop(NORM), f"tensor {NORM}: expected BF16 [32], found no such tensor"),
    (lambda t: t.pop(EMBEDDING_NAME), f"tensor {EMBEDDING_NAME}: expected BF16 [{VOCAB_SIZE}, 32]"),
    (lambda t: t.update({"extra.weight": ("BF16", [2], bytes(4))}), "tensor extra.weight: expected no such tensor"),
    (lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": ("BF16", [2], bytes(4))}), "q_proj.bias"),
    (lambda t: t.update({"model.layers.3.mlp.up_proj.weight": ("BF16", [2], bytes(4))}), "model.layers.3"),
    (replace(NORM, "F32", [32], 128), f"tensor {NORM}: expected BF16 [32], found F32 [32]"),
    (replace(NORM, "F16", [32], 64), f"tensor {NORM}: expected BF16 [32], found F16 [32]"),
    (replace(NORM, "BF16", [33], 66), f"tensor {NORM}: expected BF16 [32], found BF16 [33]"),
    (replace(NORM, "BF16", [1, 32], 64), f"tensor {NORM}: expected BF16 [32], found BF16 [1, 32]"),
    (replace(PROJECTION, "BF16", [32, 96], 6144), f"tensor {PROJECTION}: expected BF16 [96, 32], found BF16 [32, 96]"),
    (poison(NORM, 31, 0x7FC0), f"tensor {NORM}, element 31: expected a finite number, found bits 0x7fc0"),
    (poison(PROJECTION, 3071, 0xFF80), f"tensor {PROJECTION}, element 3071: expected a finite number, found"),
    (poison(EMBEDDING_NAME, 4_500_001, 0x7F81), f"tensor {EMBEDDING_NAME}, element 4500001: expected a finite"),
    (lambda t: t.update({HEAD_NAME: ("BF16", [5, 32], bytes(320))}), f"tensor {HEAD_NAME}: expected BF16"),
    (lambda t: t.update({HEAD_NAME: ("BF16", [VOCAB_SIZE, 32], with_bits(t[EMBEDDING_NAME][2], 4_861_951, 1))}),
     f"tensor {HEAD_NAME}: expected the bytes of {EMBEDDING_NAME}"),
]


@pytest.mark.parametrize(("change", "words"), TENSOR_CHANGES)
def test_wrong_weights_are_refused_and_leave_nothing(change, words: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    rewrite(copy, change)
    output = tmp_path / "out"
    with pytest.raises(ToolError) as caught:
        convert("tiny", copy.folder, output / "a.gguf", BF16)
    assert words in str(caught.value)
    assert "model.safetensors" in str(caught.value) or "no such tensor" in str(caught.value)
    assert not output.exists() or list(output.iterdir()) == []


def test_the_largest_finite_numbers_and_subnormals_pass(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    for index, bits in enumerate((0x7F7F, 0xFF7F, 0x0001, 0x8000)):
        rewrite(copy, poison(NORM, index, bits))
    with GgufFile(convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)) as file:
        assert np.frombuffer(file.read("blk.1.attn_norm.weight", 0, 8), "<u2").tolist() == [0x7F7F, 0xFF7F, 1, 0x8000]


def test_a_tied_checkpoint_may_ship_an_equal_head(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    rewrite(copy, lambda tensors: tensors.update({HEAD_NAME: tensors[EMBEDDING_NAME]}))
    with GgufFile(convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)) as file:
        assert "output.weight" not in file.tensors


def test_an_untied_checkpoint_must_ship_its_head(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny-base")
    rewrite(copy, lambda tensors: tensors.pop(HEAD_NAME))
    with pytest.raises(ToolError, match=r"tensor lm_head\.weight: expected BF16"):
        convert("tiny-base", copy.folder, tmp_path / "a.gguf", BF16)


CHILD = """
import re, resource, sys
sys.path.insert(0, {root!r})
import tools.checkpoints
from tools.checkpoints import Checkpoint
tools.checkpoints.CHECKPOINTS = (Checkpoint("large", "test/large", "1" * 40, "instruct", 1, {hidden}, 64, 8, 4096, 1e6,
                                            True, True, False),)
{before}
from tools.errors import run_tool
from tools.convert_to_gguf import main
status = run_tool(main)
# Not ru_maxrss: that one counts the parent's memory too, from before exec.
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1), file=sys.stderr)
sys.exit(status)
"""


def start_conversion(folder: Path, output: Path, hidden: int, before: str = "") -> subprocess.Popen[str]:
    code = CHILD.format(root=str(REPOSITORY), hidden=hidden, before=before)
    return subprocess.Popen([sys.executable, "-c", code, "--checkpoint", "large", "--source", str(folder), "--output",
                             str(output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def sparse_snapshot(tmp_path_factory: pytest.TempPathFactory, originals: dict[str, Path]) -> Path:
    """A snapshot whose embedding alone has 620 MB, all holes."""
    return sparse_copy(originals["tiny"], tmp_path_factory.mktemp("sparse") / "large", hidden=2048)


def sparse_copy(original: Path, folder: Path, hidden: int) -> Path:
    copy = Snapshot(original, folder)
    change = {"hidden_size": hidden, "num_hidden_layers": 1, "intermediate_size": 64}
    copy.edit("config.json", lambda config: config.update(change))
    large = Checkpoint("large", "test/large", "1" * 40, "instruct", 1, hidden, 64, 8, 4096, 1e6, True, True, False)
    tensors = model_tensors(large, 1)
    header = encode_header(tensors)
    copy.replace("model.safetensors", header)
    os.truncate(folder / "model.safetensors", len(header) + sum(2 * tensor.num_elements for tensor in tensors))
    return folder


def test_memory_does_not_grow_with_the_weights(sparse_snapshot: Path, tmp_path: Path) -> None:
    """The peak is that of the tokenizer's JSON and a few pieces, far below 620 MB of weights and 2 GiB."""
    process = start_conversion(sparse_snapshot, tmp_path / "a.gguf", hidden=2048)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    weights_bytes = (tmp_path / "a.gguf").stat().st_size
    peak_bytes = int(errors.split()[-1]) * 1024
    assert weights_bytes > 600 << 20
    assert peak_bytes < 450 << 20
    (tmp_path / "a.gguf").unlink()


def wait_for_data(process: subprocess.Popen[str], partial: Path) -> None:
    """Until the conversion is in the middle of its weights."""
    deadline = time.monotonic() + 120
    while not (partial.exists() and partial.stat().st_size > 32 << 20):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_killed_conversion_leaves_no_artifact_and_the_next_one_succeeds(sparse_snapshot: Path,
                                                                          tmp_path: Path) -> None:
    output, partial = tmp_path / "a.gguf", tmp_path / ".a.gguf.partial"
    process = start_conversion(sparse_snapshot, output, hidden=2048)
    wait_for_data(process, partial)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    assert partial.exists()
    again = start_conversion(sparse_snapshot, output, hidden=2048)
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf"]
    output.unlink()


def test_an_interrupted_conversion_cleans_up(sparse_snapshot: Path, tmp_path: Path) -> None:
    process = start_conversion(sparse_snapshot, tmp_path / "a.gguf", hidden=2048)
    wait_for_data(process, tmp_path / ".a.gguf.partial")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing(originals: dict[str, Path], tmp_path: Path) -> None:
    """A real failure of the kernel in the middle of the data: the file size limit."""
    folder = sparse_copy(originals["tiny"], tmp_path / "large", hidden=64)
    limit = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " \
            "resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 20, 12 << 20))"
    output = tmp_path / "out"
    process = start_conversion(folder, output / "a.gguf", hidden=64, before=limit)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "error: " in errors
    assert "writing failed: File too large" in errors
    assert list(output.iterdir()) == []


def test_pieces_are_cut_by_bytes_whatever_the_shape() -> None:
    for tensor in model_tensors(find_checkpoint("qwen3-32b"), 64):
        pieces = list(row_pieces(tensor, 8 << 20))
        position = 0
        for first, count in pieces:
            assert first == position
            position += count
            assert count * tensor.columns * 2 <= 8 << 20
        assert position == tensor.rows


@pytest.mark.parametrize("name", ["q8_0", "affine4_gs32"])
def test_only_projections_are_quantised(name: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    """Each of them as if it were encoded at once; all other bytes are those of the BF16 artifact."""
    scheme = SCHEMES[name]
    folder = snapshot("tiny-base").folder
    (tmp_path / "models").mkdir()
    with GgufFile(convert("tiny-base", folder, tmp_path / "models", scheme)) as found, \
         GgufFile(convert("tiny-base", folder, tmp_path / "a.gguf", BF16)) as exact:
        assert found.path.name == f"kipp-tiny-base-{name}.gguf"
        changed = {key for key in exact.metadata if found.metadata[key] != exact.metadata[key]}
        assert changed == {"general.file_type", "kipp.quant.scheme"}
        assert found.metadata["general.file_type"] == {"q8_0": 7, "affine4_gs32": 3}[name]
        assert list(found.tensors) == list(exact.tensors)
        for tensor in model_tensors(TINY_BASE, TINY_BASE.num_layers):
            encoding = scheme.encoding_of(tensor)
            bits = exact.read(tensor.gguf_name, 0, 2 * tensor.num_elements)
            data = found.read(tensor.gguf_name, 0, encoding.num_bytes(tensor.num_elements))
            is_projection = tensor.gguf_name.startswith("blk.") and "norm" not in tensor.gguf_name
            assert found.tensors[tensor.gguf_name].ggml_type == (scheme.projection.ggml_type if is_projection else 30)
            rows = np.frombuffer(bits, "<u2").reshape(-1, tensor.columns)
            assert data == (encoding.encode(rows).tobytes() if is_projection else bits)


@pytest.mark.parametrize(("name", "field"), [("q8_0", "scale"), ("affine4_gs32", "bias")])
def test_a_weight_that_fp16_cannot_scale_is_named_and_leaves_nothing(name: str, field: str, snapshot: SnapshotOf,
                                                                     tmp_path: Path) -> None:
    copy = snapshot("tiny")
    rewrite(copy, poison(PROJECTION, 2 * 96 + 70, 0xFF00))  # a finite -1.7e38
    output = tmp_path / "out"
    with pytest.raises(ToolError) as caught:
        convert("tiny", copy.folder, output / "a.gguf", SCHEMES[name])
    assert f"tensor {PROJECTION}, block 8 of 32 weights: expected weights whose {field} fits fp16" in str(caught.value)
    assert "found one that needs more: -1.7" in str(caught.value)
    assert list(output.iterdir()) == []


def test_the_scheme_is_chosen_on_the_command_line(snapshot: SnapshotOf, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    arguments = ["--checkpoint", "tiny", "--source", str(snapshot("tiny").folder), "--output", str(tmp_path / "models")]
    assert convert_to_gguf.main([*arguments, "--scheme", "q8_0"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'models' / 'kipp-tiny-q8_0.gguf'}\n"
    with pytest.raises(SystemExit):
        convert_to_gguf.main([*arguments, "--scheme", "q4_k_m"])
    assert "'bf16', 'q8_0', 'affine4_gs32'" in capsys.readouterr().err
