"""The stored form of the demo checkpoint: exact both ways, verified on reading, the same bytes every time."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.command import run_command
from tools.demo import snapshot, unpack
from tools.errors import ToolError

STORED = Path(snapshot.__file__).resolve().parent / "checkpoint"


def small_checkpoint() -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(1)
    rows = np.array([0, 3, 4, 250, 299], dtype=np.int32)
    shapes = {snapshot.EMBEDDING: (5, 8), "model.norm.weight": (8,), "model.layers.0.mlp.up_proj.weight": (16, 8)}
    return {
        name: snapshot.to_bf16(rng.normal(0, 0.05, shape).astype(np.float32)) for name, shape in shapes.items()
    }, rows


def test_bf16_rounds_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, 3.3895e38, 1e-40], dtype=np.float32)
    assert [hex(bits) for bits in snapshot.to_bf16(values)] == ["0x3f80", "0x3f80", "0x3f82", "0xc020", "0x7f7f", "0x1"]
    with pytest.raises(snapshot.SnapshotError):
        snapshot.to_bf16(np.array([np.nan], dtype=np.float32))


def test_round_trip(tmp_path):
    tensors, rows = small_checkpoint()
    manifest = snapshot.pack(tmp_path, tensors, rows, {"vocab_size": 300}, {"steps": 1})
    loaded, loaded_rows, _ = snapshot.load_stored(tmp_path)
    assert loaded_rows.tolist() == rows.tolist()
    assert loaded.keys() == tensors.keys()
    assert all((loaded[name] == tensors[name]).all() for name in tensors)
    snapshot.unpack(tmp_path, tmp_path / "out")
    data = (tmp_path / "out/model.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == manifest["model_sha256"]
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    start, end = header[snapshot.EMBEDDING]["data_offsets"]
    embedding = np.frombuffer(data[8 + size + start : 8 + size + end], dtype="<u2").reshape(
        header[snapshot.EMBEDDING]["shape"]
    )
    assert embedding.shape == (300, 8)
    assert (embedding[rows] == tensors[snapshot.EMBEDDING]).all()
    assert not np.delete(embedding, rows, axis=0).any()


def test_packing_is_deterministic(tmp_path):
    tensors, rows = small_checkpoint()
    for name in ("a", "b"):
        snapshot.pack(tmp_path / name, tensors, rows, {"vocab_size": 300}, {})
    for name in (*snapshot.FILES, "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("name", snapshot.FILES)
def test_a_changed_file_is_refused(tmp_path, name):
    snapshot.pack(tmp_path, *small_checkpoint(), {"vocab_size": 300}, {})
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(snapshot.SnapshotError, match=name):
        snapshot.load_stored(tmp_path)


def test_a_changed_manifest_is_refused(tmp_path):
    snapshot.pack(tmp_path, *small_checkpoint(), {"vocab_size": 300}, {})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["config"]["vocab_size"] = 301
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(snapshot.SnapshotError, match=r"model\.safetensors"):
        snapshot.unpack(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(("field", "value"), [
    ("generation_config", None),  # its contents are passed on unread: the converter judges them
    *itertools.product(("config", "model_sha256", "files", "tensors"), (None, 3, [], "text"))])
def test_a_malformed_manifest_is_one_line(tmp_path, field, value):
    snapshot.pack(tmp_path, *small_checkpoint(), {"vocab_size": 300}, {})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    if value is None:
        del manifest[field]
    else:
        manifest[field] = value
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ToolError) as caught:
        snapshot.unpack(tmp_path, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_file_and_is_one_line(tmp_path, monkeypatch, capsys):
    """The disk is full after the small files."""
    snapshot.pack(tmp_path, *small_checkpoint(), {"vocab_size": 300}, {})
    real_write = os.write

    def full(fd, data):
        if Path(os.readlink(f"/proc/self/fd/{fd}")).name.startswith(".model"):
            if len(data) > 100:
                return real_write(fd, data[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(sys, "argv", ["unpack", "--stored", str(tmp_path), "--output", str(tmp_path / "out")])
    assert run_command(unpack.main) == 1
    message = f"error: {tmp_path}/out/model.safetensors: writing failed: No space left on device\n"
    assert capsys.readouterr() == ("", message)
    assert not [path for path in (tmp_path / "out").iterdir() if "model" in path.name]


def test_a_fifo_is_not_unpacked_over(tmp_path):
    snapshot.pack(tmp_path, *small_checkpoint(), {"vocab_size": 300}, {})
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "model.safetensors")
    with pytest.raises(ToolError, match=r"model\.safetensors: is a FIFO"):
        snapshot.unpack(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_fifo()


def test_the_committed_checkpoint_unpacks():
    """Reads every stored file, rebuilds the weights and compares their hash with the manifest and the registry."""
    if not (STORED / "manifest.json").exists():
        pytest.skip("the demo checkpoint is not in this tree")
    from tools import checkpoints

    tensors, rows, manifest = snapshot.load_stored(STORED)
    config = manifest["config"]
    assert tensors[snapshot.EMBEDDING].shape == (len(rows), config["hidden_size"])
    weights = snapshot.safetensors_bytes(snapshot.expand(tensors, rows, config["vocab_size"]))
    assert hashlib.sha256(weights).hexdigest() == manifest["model_sha256"]
    demo = next(entry for entry in checkpoints.CHECKPOINTS if entry.is_demo)
    assert demo.revision == manifest["model_sha256"][:40]
    assert sum(entry["bytes"] for entry in manifest["files"].values()) <= 25_000_000
