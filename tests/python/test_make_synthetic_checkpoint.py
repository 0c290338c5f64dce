"""Twins on disk: the two ways to an artifact agree, shards stand alone, and the bytes never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_snapshots import TINY, Snapshot

from tools import make_synthetic_checkpoint
from tools.checkpoints import find_checkpoint
from tools.convert_to_gguf import convert
from tools.errors import ToolError
from tools.gguf_reader import GgufFile
from tools.model_tensors import model_tensors
from tools.safetensors_reader import INDEX_NAME, SnapshotWeights
from tools.weight_schemes import SCHEMES


def make(*arguments: object) -> None:
    assert make_synthetic_checkpoint.main([str(argument) for argument in arguments]) == 0


def data_of(path: Path) -> bytes:
    with GgufFile(path) as file:
        return path.read_bytes()[file.data_start :]


def test_the_bytes_of_a_twin(tmp_path: Path) -> None:
    """Every weight of a registry entry's twin; a change here makes recipe 2."""
    make("--like", "kipp-demo", "--seed", 1, "--layers", 1, "--artifact", tmp_path)
    path = tmp_path / "kipp-kipp-demo-1layers-bf16.gguf"
    found = hashlib.sha256(data_of(path)).hexdigest()
    assert found == "847d73562177408b56ba1212634a4ccd58c4d76ac514db92d4d0dc4abf2bd946"
    with GgufFile(path) as file:
        assert file.metadata["kipp.source.repository"] == "synthetic/kipp-demo-1layers"
        assert file.metadata["kipp.source.revision"] == "recipe1-seed1"
        assert file.metadata["qwen3.block_count"] == 1
        assert "tokenizer.chat_template" not in file.metadata


@pytest.mark.parametrize("scheme", ["q8_0", "affine4_gs32"])
def test_a_quantised_twin_is_that_of_the_same_weights(scheme: str, tmp_path: Path) -> None:
    common = ("--like", "tiny", "--seed", 9, "--layers", 2)
    make(*common, "--scheme", scheme, "--jobs", 3, "--artifact", tmp_path)
    make(*common, "--output", tmp_path / "snapshot")
    convert("tiny", tmp_path / "snapshot", tmp_path / "converted.gguf", SCHEMES[scheme], allow_synthetic=True)
    assert data_of(tmp_path / f"kipp-tiny-2layers-{scheme}.gguf") == data_of(tmp_path / "converted.gguf")
    with pytest.raises(ToolError, match=f"--scheme {scheme} needs --artifact: a snapshot holds BF16"):
        make(*common, "--scheme", scheme, "--output", tmp_path / "other")


@pytest.mark.parametrize("checkpoint_id", ["tiny", "tiny-base"])
def test_straight_and_by_snapshot_are_the_same_artifact(checkpoint_id: str, tmp_path: Path) -> None:
    common = ("--like", checkpoint_id, "--seed", 9, "--layers", 2)
    make(*common, "--artifact", tmp_path / "straight.gguf")
    make(*common, "--output", tmp_path / "snapshot")
    convert(checkpoint_id, tmp_path / "snapshot", tmp_path / "converted.gguf", SCHEMES["bf16"], allow_synthetic=True)
    with GgufFile(tmp_path / "straight.gguf") as straight, GgufFile(tmp_path / "converted.gguf") as converted:
        straight_hashes = straight.metadata.pop("kipp.source.sha256")
        converted_hashes = converted.metadata.pop("kipp.source.sha256")
        assert list(straight.metadata.items()) == list(converted.metadata.items())
        assert straight.tensors == converted.tensors
    assert set(straight_hashes) < set(converted_hashes)
    weights = hashlib.sha256((tmp_path / "snapshot" / "model.safetensors").read_bytes()).hexdigest()
    assert set(converted_hashes) - set(straight_hashes) == {f"model.safetensors:{weights}"}
    assert data_of(tmp_path / "straight.gguf") == data_of(tmp_path / "converted.gguf")


def test_full_depth_has_the_plain_name(tmp_path: Path) -> None:
    make("--like", "tiny", "--seed", 0, "--artifact", tmp_path)
    with GgufFile(tmp_path / "kipp-tiny-bf16.gguf") as file:
        assert file.metadata["kipp.source.repository"] == "synthetic/tiny"


def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    for jobs in (1, 5):
        make("--like", "tiny", "--seed", 4, "--jobs", jobs, "--artifact", tmp_path / f"{jobs}.gguf")
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "5.gguf").read_bytes()


def test_a_shard_made_alone_is_the_same_file(tmp_path: Path) -> None:
    common = ("--like", "tiny-base", "--seed", 4, "--shard-bytes", 300_000, "--output")
    make(*common, tmp_path / "all")
    names = sorted(path.name for path in (tmp_path / "all").glob("*.safetensors"))
    assert len(names) > 3
    make(*common, tmp_path / "one", "--shard", 2)
    assert [path.name for path in (tmp_path / "one").glob("*.safetensors")] == [names[1]]
    for name in (names[1], INDEX_NAME, "config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_shards_hold_the_tensors_of_the_single_file(originals: dict[str, Path]) -> None:
    assert len(list(originals["tiny-sharded"].glob("model-*.safetensors"))) > 2
    with SnapshotWeights(originals["tiny"]) as single, SnapshotWeights(originals["tiny-sharded"]) as sharded:
        assert single.location.keys() == sharded.location.keys()
        for name in single.location:
            size = single.entry(name).num_bytes
            assert single.read(name, 0, size) == sharded.read(name, 0, size)


@pytest.mark.torch
@pytest.mark.parametrize("scheme", SCHEMES)
def test_torch_writes_the_same_artifact(scheme: str, tmp_path: Path) -> None:
    for device in ("numpy", "cpu"):
        make("--like", "tiny-base", "--seed", 4, "--device", device, "--scheme", scheme,
             "--artifact", tmp_path / f"{device}.gguf")
    assert (tmp_path / "numpy.gguf").read_bytes() == (tmp_path / "cpu.gguf").read_bytes()


@pytest.mark.torch
def test_torch_writes_the_same_snapshot(tmp_path: Path) -> None:
    for device in ("numpy", "cpu"):
        make("--like", "tiny", "--seed", 4, "--device", device, "--output", tmp_path / device)
    weights = [(tmp_path / device / "model.safetensors").read_bytes() for device in ("numpy", "cpu")]
    assert weights[0] == weights[1]


@pytest.mark.torch
def test_torch_quantises_what_it_drew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is stored comes back from the device: no projection goes through host memory as bf16."""
    from tools.synthetic_torch import TorchTwinWeights

    def refuse(*_arguments: object) -> None:
        raise AssertionError("rows in host memory")

    monkeypatch.setattr(TorchTwinWeights, "rows", refuse)
    make("--like", "tiny", "--seed", 4, "--device", "cpu", "--scheme", "affine4_gs32", "--artifact", tmp_path)


def test_a_base_twin_splits_the_think_tokens(originals: dict[str, Path]) -> None:
    added = json.loads((originals["tiny-base"] / "tokenizer.json").read_bytes())["added_tokens"]
    assert len(added) == 22
    assert not any("think" in token["content"] for token in added)


def test_the_marker_says_what_the_snapshot_is(snapshot: Callable[[str], Snapshot]) -> None:
    marker = json.loads((snapshot("tiny-synthetic").folder / "kipp_synthetic.json").read_bytes())
    assert marker == {"recipe": 1, "seed": 11, "id": "tiny", "layers": TINY.num_layers}


@pytest.mark.parametrize(("arguments", "words"), [
    (("--like", "qwen3-5b", "--seed", "1", "--artifact", "x"), "unknown checkpoint 'qwen3-5b'"),
    (("--like", "tiny", "--seed", "-1", "--artifact", "x"), "--seed -1"),
    (("--like", "tiny", "--seed", str(1 << 64), "--artifact", "x"), "2^64-1"),
    (("--like", "tiny", "--seed", "1", "--layers", "4", "--artifact", "x"), "allows 1 to 3"),
    (("--like", "tiny", "--seed", "1", "--layers", "0", "--artifact", "x"), "allows 1 to 3"),
    (("--like", "tiny", "--seed", "1", "--shard", "1", "--artifact", "x"), "--shard needs --output"),
    (("--like", "tiny", "--seed", "1", "--jobs", "0", "--artifact", "x"), "must be positive"),
    (("--like", "tiny", "--seed", "1", "--shard", "2", "--output", "x"), "shards 1 to 1"),
])
def test_bad_arguments(arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolError) as caught:
        make(*arguments)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_real_snapshot_is_not_written_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"real")
    with pytest.raises(ToolError, match=rf"{name}: is there and no file of a synthetic twin"):
        make("--like", "tiny", "--seed", 1, "--output", tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"real")]


@pytest.mark.parametrize(("checkpoint_id", "gib"), [
    ("qwen3-0.6b", 1.11), ("qwen3-4b", 7.49), ("qwen3-8b", 15.26), ("qwen3-32b", 61.02)])
def test_sizes_of_registry_entries(checkpoint_id: str, gib: float) -> None:
    """Known sizes of the real checkpoints (8B: 15.26 GiB), from the tensor list alone."""
    checkpoint = find_checkpoint(checkpoint_id)
    total = sum(2 * tensor.num_elements for tensor in model_tensors(checkpoint, checkpoint.num_layers))
    assert total / (1 << 30) == pytest.approx(gib, abs=0.01)
