"""The export for llama.cpp: what it changes and what not, and that it refuses whatever is no whole artifact."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_snapshots import TINY, TINY_BASE

from tools import export_llama_cpp
from tools.bf16 import widen
from tools.checkpoints import Checkpoint
from tools.convert_to_gguf import convert
from tools.errors import ToolError, run_tool
from tools.export_llama_cpp import export, exported_metadata
from tools.gguf_reader import GgufFile
from tools.gguf_writer import Metadata, TensorInfo, ValueType, align, encode_header, tensor_offsets
from tools.model_tensors import ModelTensor, model_tensors
from tools.weight_schemes import SCHEMES

NORM_NAMES = {"attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm", "output_norm"}


def stored_bytes(file: GgufFile, name: str) -> int:
    """By GGML type: F32, Q4_1, Q8_0, BF16."""
    return {0: 128, 3: 20, 8: 34, 30: 64}[file.tensors[name].ggml_type] * file.num_elements(name) // 32


def edited(artifact: Path, target: Path, *, keys: Callable[[list[Metadata]], list[Metadata]] = list,
           tensors: Callable[[list[TensorInfo]], list[TensorInfo]] = list) -> Path:
    """The artifact with another header before the same data."""
    with GgufFile(artifact) as file:
        infos = [TensorInfo(name, entry.dimensions, entry.ggml_type, stored_bytes(file, name))
                 for name, entry in file.tensors.items()]
        header = encode_header(keys(exported_metadata(file)), tensors(infos))
        data = artifact.read_bytes()[file.data_start :]
    target.write_bytes(header + bytes(align(len(header)) - len(header)) + data)
    return target


@pytest.fixture(scope="module")
def artifacts(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("artifacts")
    made = {name: convert(name, originals[name], root / f"{name}.gguf", SCHEMES["bf16"])
            for name in ("tiny", "tiny-base")}
    twin = convert("tiny", originals["tiny-synthetic"], root / "twin.gguf", SCHEMES["bf16"], allow_synthetic=True)
    # Without the vocabulary, which the export does not look at, a hundred files are made and read in no time.
    bare = edited(made["tiny"], root / "bare.gguf",
                  keys=lambda entries: [entry for entry in entries if entry.type is not ValueType.ARRAY])
    quantised = {scheme: convert("tiny", originals["tiny"], root / f"{scheme}.gguf", SCHEMES[scheme])
                 for scheme in ("q8_0", "affine4_gs32")}
    return made | quantised | {"twin": twin, "bare": bare}


def is_norm(name: str) -> bool:
    return name.split(".")[-2] in NORM_NAMES


def whole(file: GgufFile, name: str, element_bytes: int) -> bytes:
    return bytes(file.read(name, 0, element_bytes * file.num_elements(name)))


@pytest.mark.parametrize("checkpoint", [TINY, TINY_BASE], ids=lambda checkpoint: checkpoint.id)
def test_norms_are_widened_and_the_rest_is_byte_for_byte_the_same(checkpoint: Checkpoint, artifacts: dict[str, Path],
                                                                  tmp_path: Path) -> None:
    path = export(artifacts[checkpoint.id], tmp_path / "out.gguf")
    num_norms = 0
    with GgufFile(artifacts[checkpoint.id]) as before, GgufFile(path) as after:
        assert list(after.tensors) == list(before.tensors)
        for name, entry in after.tensors.items():
            assert entry.dimensions == before.tensors[name].dimensions
            original = whole(before, name, 2)
            if is_norm(name):
                num_norms += 1
                assert entry.ggml_type == 0
                # The definition, on bytes: a BF16 number is the upper half of an F32 one.
                assert whole(after, name, 4) == b"".join(b"\0\0" + original[i : i + 2]
                                                         for i in range(0, len(original), 2))
            else:
                assert entry.ggml_type == 30
                assert whole(after, name, 2) == original
    assert num_norms == 4 * checkpoint.num_layers + 1


@pytest.mark.parametrize("scheme", ["q8_0", "affine4_gs32"])
def test_quantised_tensors_are_copied(scheme: str, artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = export(artifacts[scheme], tmp_path / "out.gguf")
    types = set()
    with GgufFile(artifacts[scheme]) as before, GgufFile(path) as after:
        assert list(after.metadata.items()) == list(before.metadata.items())
        assert list(after.tensors) == list(before.tensors)
        for name, entry in after.tensors.items():
            assert entry.ggml_type == (0 if is_norm(name) else before.tensors[name].ggml_type)
            size = stored_bytes(before, name)
            if is_norm(name):
                continue
            types.add(entry.ggml_type)
            assert after.read(name, 0, size) == before.read(name, 0, size)
    assert types == {30, 8 if scheme == "q8_0" else 3}


@pytest.mark.parametrize("name", ["tiny", "tiny-base"])
def test_the_keys_are_the_same_bytes(name: str, artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = export(artifacts[name], tmp_path / "out.gguf")
    with GgufFile(artifacts[name]) as before, GgufFile(path) as after:
        assert list(after.metadata.items()) == list(before.metadata.items())
        assert after.types == before.types
        keys_end = len(encode_header(exported_metadata(before), []))
    # The counts and every key; what follows are the entries of the tensors.
    assert path.read_bytes()[:keys_end] == artifacts[name].read_bytes()[:keys_end]


def test_offsets_are_aligned_and_the_data_fill_the_file(artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = export(artifacts["tiny"], tmp_path / "out.gguf")
    position = 0
    with GgufFile(path) as file:
        assert file.data_start % 128 == 0
        for name, entry in file.tensors.items():
            assert entry.offset == align(position)
            position = entry.offset + (4 if is_norm(name) else 2) * file.num_elements(name)
        assert file.num_bytes == file.data_start + position
    assert path.stat().st_size == file.num_bytes


def test_tensors_are_read_and_written_in_bounded_pieces(artifacts: dict[str, Path], tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = export(artifacts["bare"], tmp_path / "at-once.gguf")
    sizes: list[int] = []
    read = GgufFile.read

    def recording_read(file: GgufFile, name: str, offset: int, num_bytes: int) -> bytearray:
        sizes.append(num_bytes)
        return read(file, name, offset, num_bytes)

    monkeypatch.setattr(GgufFile, "read", recording_read)
    monkeypatch.setattr(export_llama_cpp, "PIECE_BYTES", 1 << 10)
    in_pieces = export(artifacts["bare"], tmp_path / "in-pieces.gguf")
    assert max(sizes) == 1 << 10
    assert in_pieces.read_bytes() == at_once.read_bytes()


def test_special_values_of_a_norm_survive(artifacts: dict[str, Path], tmp_path: Path) -> None:
    """Zeros of both signs, the smallest and largest numbers, infinity, NaN with its payload: nothing is rounded."""
    special = np.array([0, 0x8000, 1, 0x807F, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x3F80], "<u2").tobytes()
    copy = tmp_path / "copy.gguf"
    data = bytearray(artifacts["bare"].read_bytes())
    with GgufFile(artifacts["bare"]) as file:
        start = file.data_start + file.tensors["output_norm.weight"].offset
    data[start : start + len(special)] = special
    copy.write_bytes(data)
    with GgufFile(export(copy, tmp_path / "out.gguf")) as file:
        found = file.read("output_norm.weight", 0, 2 * len(special))
    assert found == widen(np.frombuffer(special, "<u2")).tobytes()
    assert np.isnan(np.frombuffer(found, "<f4")).sum() == 2


def test_the_order_of_the_file_is_kept(artifacts: dict[str, Path], tmp_path: Path) -> None:
    """An artifact may list its tensors in any order, and hold their data in another."""
    with GgufFile(artifacts["bare"]) as file:
        metadata = exported_metadata(file)
        contents = {name: whole(file, name, 2) for name in file.tensors}
        infos = {name: TensorInfo(name, entry.dimensions, 30, len(contents[name]))
                 for name, entry in file.tensors.items()}
    backwards = [infos[name] for name in reversed(infos)]
    header = encode_header(metadata, backwards)
    shuffled = tmp_path / "shuffled.gguf"
    parts = [header, bytes(align(len(header)) - len(header))]
    position = 0
    for info, offset in zip(backwards, tensor_offsets(backwards), strict=True):
        parts += [bytes(offset - position), contents[info.name]]
        position = offset + info.num_bytes
    shuffled.write_bytes(b"".join(parts))
    with GgufFile(export(shuffled, tmp_path / "out.gguf")) as after:
        assert list(after.tensors) == list(reversed(infos))
        assert whole(after, "token_embd.weight", 2) == contents["token_embd.weight"]


def with_key(key: str, value: object, kind: ValueType) -> Callable[[list[Metadata]], list[Metadata]]:
    return lambda entries: [Metadata(key, kind, value) if entry.key == key else entry for entry in entries]


def without_key(key: str) -> Callable[[list[Metadata]], list[Metadata]]:
    return lambda entries: [entry for entry in entries if entry.key != key]


def assert_refused(artifact: Path, folder: Path, words: str) -> None:
    """Refused in words, with the file's name; nothing is left behind, nor anything put over what was there."""
    folder.mkdir(exist_ok=True)
    output = folder / "out.gguf"
    output.write_bytes(b"before")
    with pytest.raises(ToolError, match=words) as caught:
        export(artifact, output)
    assert str(artifact) in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["out.gguf"]
    assert output.read_bytes() == b"before"
    output.unlink()
    with pytest.raises(ToolError, match=words):
        export(artifact, output)
    assert list(folder.iterdir()) == []


TEXT, U32 = ValueType.STRING, ValueType.U32
KEY_FAULTS = [
    (with_key("general.architecture", "llama", TEXT), "general.architecture: expected qwen3, found llama"),
    (with_key("general.architecture", "qwen3moe", TEXT), "general.architecture: expected qwen3, found qwen3moe"),
    (without_key("general.architecture"), "general.architecture: expected qwen3, found no such key"),
    (without_key("kipp.format_version"), "kipp.format_version: expected 1, found no such key"),
    (with_key("kipp.format_version", 2, U32), "kipp.format_version: expected 1, found 2"),
    (with_key("kipp.format_version", 1, ValueType.I32), r"kipp.format_version: type: expected U32 \(4\), found 5"),
    (without_key("kipp.checkpoint.id"), "kipp.checkpoint.id: expected a STRING, found no such key"),
    (with_key("kipp.checkpoint.id", "tiny-moe", TEXT), "kipp.checkpoint.id: expected one of .*, found tiny-moe"),
    (with_key("kipp.quant.scheme", "q4_k_m", TEXT), "scheme: expected one of bf16, q8_0, affine4_gs32, found q4_k_m"),
    (with_key("kipp.quant.scheme", "q8_0", TEXT), "general.file_type: expected 7, found 32"),
    (with_key("kipp.source.repository", "other/tiny", TEXT), "repository: expected test/tiny, found other/tiny"),
    (with_key("kipp.source.revision", "0" * 40, TEXT), "revision: expected 1{40}, found 0{40}"),
    (with_key("kipp.source.repository", "synthetic/tiny", TEXT), "--allow-synthetic"),
    (with_key("general.alignment", 32, U32), "general.alignment: expected 128, found 32"),
    (with_key("qwen3.block_count", 2, U32), "qwen3.block_count: expected 3, found 2"),
    (with_key("qwen3.rope.freq_base", 1e4, ValueType.F32), "rope.freq_base: expected 1000000.0, found 10000.0"),
    (with_key("qwen3.rope.freq_base", 1000000, U32), r"rope.freq_base: type: expected F32 \(6\), found 4"),
    (without_key("qwen3.attention.layer_norm_rms_epsilon"), "rms_epsilon: expected .*, found no such key"),
    (with_key("qwen3.attention.layer_norm_rms_epsilon", 1e-5, ValueType.F32), "rms_epsilon: expected .*, found "),
    (with_key("qwen3.attention.head_count", 9, U32), "attention.head_count: expected [0-9]+, found 9"),
    (with_key("qwen3.context_length", 7, U32), "context_length: expected [0-9]+, found 7"),
    (with_key("tokenizer.ggml.eos_token_id", 7, U32), "eos_token_id: expected [0-9]+, found 7"),
]


@pytest.mark.parametrize(("change", "words"), KEY_FAULTS, ids=lambda value: value if isinstance(value, str) else "")
def test_other_keys_are_refused(change: Callable, words: str, artifacts: dict[str, Path], tmp_path: Path) -> None:
    assert_refused(edited(artifacts["bare"], tmp_path / "bad.gguf", keys=change), tmp_path / "out", words)


def swapped(tensor: str, **changes: object) -> Callable[[list[TensorInfo]], list[TensorInfo]]:
    def change(infos: list[TensorInfo]) -> list[TensorInfo]:
        return [TensorInfo(**(vars(info) | changes)) if info.name == tensor else info for info in infos]

    return change


TENSOR_FAULTS = [
    (swapped("blk.0.attn_q.weight", ggml_type=8), r"blk.0.attn_q.weight: type: expected BF16 \(30\), found 8"),
    (swapped("blk.0.attn_norm.weight", ggml_type=0), r"blk.0.attn_norm.weight: type: expected BF16 \(30\), found 0"),
    (swapped("blk.0.attn_q.weight", dimensions=(1024, 32)), r"dimensions: expected \(32, 1024\), found \(1024, 32\)"),
    (swapped("blk.2.ffn_up.weight", name="blk.9.ffn_up.weight"), "blk.2.ffn_up.weight: expected to be there, found no"),
    (lambda infos: [*infos, TensorInfo("rope_freqs.weight", (64,), 0, 256)], "rope_freqs.weight: expected no other"),
    (lambda infos: infos[:-1], "output_norm.weight: expected to be there, found no such tensor"),
    (swapped("blk.0.attn_q.weight", num_bytes=70000), "blk.0.attn_k.weight: offset: expected [0-9]+, found [0-9]+"),
]


@pytest.mark.parametrize(("change", "words"), TENSOR_FAULTS, ids=lambda value: value if isinstance(value, str) else "")
def test_other_tensors_are_refused(change: Callable, words: str, artifacts: dict[str, Path], tmp_path: Path) -> None:
    assert_refused(edited(artifacts["bare"], tmp_path / "bad.gguf", tensors=change), tmp_path / "out", words)


def test_an_export_is_no_artifact(artifacts: dict[str, Path], tmp_path: Path) -> None:
    first = export(artifacts["bare"], tmp_path / "first.gguf")
    assert_refused(first, tmp_path / "out", r"attn_norm.weight: type: expected BF16 \(30\), found 0")


@pytest.mark.parametrize("change", [
    lambda data: data[:-1], lambda data: data + b"\0", lambda data: data[: len(data) // 2], lambda data: data[:1000],
    lambda data: data[:4], lambda data: b"", lambda data: b"GGML" + data[4:],
    lambda data: data[:4] + struct.pack("<I", 2) + data[8:], lambda data: data[:1000] + b"\xff" * 64 + data[1064:],
], ids=["cut by a byte", "a byte too long", "half", "header cut", "magic only", "empty", "other magic", "other version",
        "damaged header"])
def test_a_broken_file_is_refused(change: Callable[[bytes], bytes], artifacts: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(change(artifacts["bare"].read_bytes()))
    assert_refused(broken, tmp_path / "out", "expected|broken header")


def test_keys_and_tensors_may_not_be_there_twice(artifacts: dict[str, Path], tmp_path: Path) -> None:
    """The writer would refuse to make such a file, so its bytes are put together here."""
    data = artifacts["bare"].read_bytes()
    magic, version, num_tensors, num_keys = struct.unpack_from("<4sIQQ", data)
    again = encode_header([Metadata("general.architecture", TEXT, "qwen3")], [])[24:]
    path = tmp_path / "twice.gguf"
    path.write_bytes(struct.pack("<4sIQQ", magic, version, num_tensors, num_keys + 1) + again + data[24:])
    assert_refused(path, tmp_path / "out", "general.architecture: there twice")
    name = b"blk.0.attn_k.weight"
    assert data.count(name) == 1
    path.write_bytes(data.replace(name, b"blk.0.attn_v.weight"))
    assert_refused(path, tmp_path / "out", "tensor blk.0.attn_v.weight: there twice")


def test_a_read_that_fails_half_way_leaves_nothing(artifacts: dict[str, Path], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    num_reads = 0

    def failing_preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal num_reads
        num_reads += 1
        if num_reads % 10 == 0:
            raise OSError(5, "Input/output error")
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing_preadv)
    assert_refused(artifacts["bare"], tmp_path / "out", "tensor .*: cannot be read: Input/output error")


def test_a_folder_is_no_artifact(tmp_path: Path) -> None:
    assert_refused(tmp_path, tmp_path / "out", "cannot be read: Is a directory")


@pytest.mark.parametrize("link", [None, os.link, os.symlink], ids=["itself", "hard link", "symbolic link"])
def test_the_artifact_is_never_written_over(link: Callable[[Path, Path], None] | None, artifacts: dict[str, Path],
                                            tmp_path: Path) -> None:
    artifact = tmp_path / "a.gguf"
    artifact.write_bytes(artifacts["bare"].read_bytes())
    output = artifact
    if link is not None:
        output = tmp_path / "b.gguf"
        link(artifact, output)
    with pytest.raises(ToolError, match="is the artifact itself; name another file with --output"):
        export(artifact, output)
    assert artifact.read_bytes() == artifacts["bare"].read_bytes()


def test_only_a_regular_file_is_replaced(artifacts: dict[str, Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ToolError, match="is a FIFO"):
        export(artifacts["bare"], tmp_path / "pipe.gguf")
    (tmp_path / "kipp-tiny-llama-cpp.gguf").write_bytes(b"old")
    os.symlink(tmp_path / "kipp-tiny-llama-cpp.gguf", tmp_path / "link.gguf")
    export(artifacts["bare"], tmp_path / "link.gguf")
    assert (tmp_path / "link.gguf").is_symlink()
    assert (tmp_path / "kipp-tiny-llama-cpp.gguf").stat().st_size > 3


def test_the_default_name_and_a_folder(artifacts: dict[str, Path], tmp_path: Path) -> None:
    artifact = tmp_path / "kipp-tiny-bf16.gguf"
    os.link(artifacts["bare"], artifact)
    assert export(artifact, None) == tmp_path / "kipp-tiny-bf16-llama-cpp.gguf"
    (tmp_path / "folder").mkdir()
    assert export(artifact, tmp_path / "folder") == tmp_path / "folder" / "kipp-tiny-bf16-llama-cpp.gguf"


def test_a_twin_needs_the_flag(artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(artifacts["twin"]), "--output", str(tmp_path / "out.gguf")]
    assert run_tool(lambda: export_llama_cpp.main(arguments)) == 1
    captured = capsys.readouterr()
    assert "its weights are synthetic; --allow-synthetic exports it all the same" in captured.err
    assert (captured.out, list(tmp_path.iterdir())) == ("", [])
    assert run_tool(lambda: export_llama_cpp.main([*arguments, "--allow-synthetic"])) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out.gguf'}\n"


def test_every_norm_of_the_model_and_nothing_else_is_a_norm() -> None:
    def widened(tensor: ModelTensor) -> bool:
        return export_llama_cpp.exported_info(tensor, SCHEMES["q8_0"]).ggml_type == 0

    for checkpoint in (TINY, TINY_BASE):
        for tensor in model_tensors(checkpoint, checkpoint.num_layers):
            assert widened(tensor) == is_norm(tensor.gguf_name) == (len(tensor.shape) == 1)
